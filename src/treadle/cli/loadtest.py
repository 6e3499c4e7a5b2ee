"""``treadle loadtest``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
import yarl

from treadle.bench.arrivals import Bursty, Pattern, constant, poisson
from treadle.bench.loadtest.loads import Load, parse_loads, parse_priority, positive
from treadle.bench.loadtest.measure import Plan, Search, measure
from treadle.bench.loadtest.plot import draw
from treadle.bench.loadtest.report import print_report
from treadle.bench.loadtest.results import Arrivals, LoadTest
from treadle.bench.loadtest.target import Wanted
from treadle.bench.results import save, to_json
from treadle.bench.svg import require_matplotlib
from treadle.bench.trace import read_trace
from treadle.cli.exits import Exit
from treadle.cli.measuring import report_console, results_file, run_measurement
from treadle.errors import ConfigError
from treadle.node.paths import socket_path

_PATTERNS = ("constant", "poisson", "bursty", "trace")
_FIRST_RATE = 10.0
"""To begin a search with."""
_USUAL_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    models: tuple[str, ...]
    rate: str | None
    find: bool
    p99: str | None
    seconds: float
    warm_up: float
    arrivals: str
    burst: str
    trace: Path | None
    column: str | None
    window: str | None
    peak: bool
    inputs: tuple[str, ...]
    pool: int
    json_bodies: bool
    priority: str | None
    timeout: float | None
    connections: int
    processes: int
    precision: float
    max_rate: float
    seed: int
    url: str | None
    output: Path | None
    plot: Path | None
    as_json: bool


def run(options: Options) -> int:
    """Measure, print, save and draw; returns an exit code.

    Raises:
        ConfigError: If an option is not usable.
        ConnectionError: If nobody answers.
        TreadleError: If a model does not answer right, or the results cannot be saved.
    """
    plan = plan_of(options)
    if options.plot is not None:
        require_matplotlib()  # before the time is spent
    result = run_measurement(partial(measure, plan))
    path = options.output or results_file("loadtest")
    save(result, path)
    if options.plot is not None:
        draw(result, options.plot)
    if options.as_json:
        typer.echo(to_json(result), nl=False)
    else:
        print_report(report_console(), result)
        typer.echo(f"saved: {path}")
    return _exit_code(result)


def plan_of(options: Options) -> Plan:
    """What the options ask for.

    Raises:
        ConfigError: If one is not usable; says which and what is allowed.
    """
    arrivals, pattern = _arrivals(options)
    return Plan(
        wanted=Wanted(
            socket=socket_path() if options.url is None else None,
            url=_url(options.url),
            loads=_loads(options),
            connections=options.connections,
            timeout_seconds=_timeout(options),
            tell_timeout=options.timeout is not None,
            pool=options.pool,
            json_bodies=options.json_bodies,
            seed=options.seed,
        ),
        arrivals=arrivals,
        pattern=pattern,
        seconds=options.seconds,
        warm_up_seconds=options.warm_up,
        processes=options.processes,
        search=Search(precision=options.precision, most=options.max_rate) if options.find else None,
    )


def _exit_code(result: LoadTest) -> int:
    """Failed if there is no figure that could be used, and says why."""
    if result.run is None:
        typer.echo("treadle: no rate was found at which every objective holds", err=True)
        return Exit.FAILED
    if not result.run.valid:
        typer.echo(
            "treadle: invalid: the load generator itself was late, or sent nothing", err=True
        )
        return Exit.FAILED
    return Exit.OK


def _loads(options: Options) -> tuple[Load, ...]:
    default = Load(
        model="",
        rate=_number("--rate", options.rate) or (_FIRST_RATE if options.find else None),
        p99_seconds=_number("--p99", options.p99),
        priority=options.priority and parse_priority("--priority", options.priority),
        inputs=options.inputs,
    )
    loads = parse_loads(options.models, default)
    for load in loads:
        if load.rate is None:
            raise ConfigError(
                f"{load.model}: no rate; allowed: --rate R, {load.model}:rate=R, or --find"
            )
    return tuple(loads)


def _number(option: str, text: str | None) -> float | None:
    return None if text is None else positive(option, text)


def _timeout(options: Options) -> float:
    if options.timeout is None:
        return _USUAL_TIMEOUT_SECONDS
    return positive("--timeout", str(options.timeout))


def _url(text: str | None) -> str:
    if text is None:
        return ""
    try:
        url = yarl.URL(text)
        if url.scheme not in {"http", "https"} or not url.host or url.path not in {"", "/"}:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"--url: {text!r}; allowed: scheme, host and port, as in http://127.0.0.1:8000"
        ) from None
    return str(url.origin())


def _arrivals(options: Options) -> tuple[Arrivals, Pattern]:
    pattern = "trace" if options.trace and options.arrivals == "poisson" else options.arrivals
    if pattern not in _PATTERNS:
        raise ConfigError(f"--arrivals: {pattern!r}; allowed: {', '.join(_PATTERNS)}")
    if pattern != "trace":
        for name in ("trace", "column", "window", "peak"):
            if getattr(options, name):
                raise ConfigError(f"--{name}: allowed only with --arrivals trace")
    match pattern:
        case "constant":
            return Arrivals(pattern=pattern), constant
        case "bursty":
            bursty = _bursty(options)
            return Arrivals(pattern=pattern, burst=str(bursty)), bursty
        case "trace":
            return _traced(options)
    return Arrivals(pattern=pattern), poisson


def _bursty(options: Options) -> Bursty:
    try:
        bursty = Bursty.parse(options.burst)
    except ConfigError as error:
        raise ConfigError(f"--burst: {error}") from None
    if options.seconds < bursty.period_seconds:
        raise ConfigError(
            f"--seconds: {options.seconds:g}; allowed with these bursts: at least "
            f"{bursty.period_seconds:g}"
        )
    return bursty


def _traced(options: Options) -> tuple[Arrivals, Pattern]:
    if options.trace is None:
        raise ConfigError("--arrivals trace: which one? allowed: --trace FILE.csv")
    window = None if options.window is None else _window(options.window)
    trace = read_trace(options.trace, options.column, window, by_peak=options.peak)
    arrivals = Arrivals(
        pattern="trace",
        trace=str(options.trace),
        column=options.column,
        window=options.window,
        peak=options.peak,
    )
    return arrivals, trace


def _window(text: str) -> tuple[float, float]:
    begin, _, end = text.partition(":")
    try:
        window = float(begin), float(end)
        if not 0 <= window[0] < window[1]:
            raise ValueError
    except ValueError:
        raise ConfigError(f"--window: {text!r}; allowed: BEGIN:END, as in 600:1200") from None
    return window
