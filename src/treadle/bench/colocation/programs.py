"""Small programs of the kinds that people run, each of which checks its own answer.

``python -m treadle.bench.colocation.programs NAME``: exit code 0 and a line on what was done;
77 where a library or a second GPU is missing; anything else is a failure.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

ABSENT = 77
_ROUNDS = 200
_SIDE = 512
_ANSWER_SECONDS = 60.0
_LOCK_MILLISECONDS = 10_000


class AbsentError(Exception):
    """What the program is about is not on this machine."""


def eager() -> str:
    """Eager PyTorch, and a device-to-host copy in between."""
    torch = _torch()
    x = torch.ones(_SIDE, _SIDE, device="cuda")
    total = 0.0
    for number in range(_ROUNDS):
        y = (x @ x) / _SIDE + number
        total += float(y[0, 0])
    _check(total == sum(1.0 + number for number in range(_ROUNDS)), f"wrong sum {total}")
    return f"{_ROUNDS} rounds"


def compiled() -> str:
    """torch.compile, forward and backward."""
    torch = _torch()
    layer = torch.nn.Sequential(torch.nn.Linear(_SIDE, _SIDE), torch.nn.GELU()).cuda()
    fast = torch.compile(layer)
    x = torch.randn(64, _SIDE, device="cuda")
    for _ in range(20):
        fast(x).sum().backward()
    worst = float((fast(x) - layer(x)).abs().max().detach())
    _check(worst < 1e-2, f"off by {worst}")
    return f"largest difference {worst:.1e}"


def graphs() -> str:
    """CUDA graphs: capture, many replays, changed inputs."""
    torch = _torch()
    x = torch.zeros(_SIDE, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.add_(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            x.add_(1)
    for _ in range(_ROUNDS):
        graph.replay()
    _check(float(x[0]) == 10 * _ROUNDS, f"counted to {float(x[0])}")
    return f"{_ROUNDS} replays"


def triton() -> str:
    """A Triton kernel, whose launcher calls the driver through the PLT."""
    torch = _torch()
    _module("triton")
    double = importlib.import_module("treadle.bench.colocation.triton_kernel").double
    x = torch.arange(4096, device="cuda", dtype=torch.float32)
    for _ in range(_ROUNDS):
        y = double(x)
    _check(bool(torch.equal(y, 2 * x)), "wrong product")
    return f"{_ROUNDS} launches"


def jax() -> str:
    """JAX jit on the GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    library = _module("jax")
    if library.default_backend() != "gpu":
        raise AbsentError(f"jax runs on {library.default_backend()} here")
    step = library.jit(lambda x: (x @ x) / _SIDE)
    x = library.numpy.ones((_SIDE, _SIDE))
    for _ in range(_ROUNDS):
        x = step(x)
    _check(float(x[0, 0]) == 1.0, f"came to {float(x[0, 0])}")
    return f"{_ROUNDS} rounds"


def cupy() -> str:
    """CuPy, with a kernel compiled at run time."""
    library = _module("cupy")
    kernel = library.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "plus_one")
    x = library.zeros(4096, dtype="float32")
    for _ in range(_ROUNDS):
        x = kernel(x)
    _check(float(x.sum()) == 4096 * _ROUNDS, "wrong sum")
    return f"{_ROUNDS} launches"


def onnx() -> str:
    """ONNX Runtime on its CUDA provider."""
    runtime, builder, numpy = _module("onnxruntime"), _module("onnx"), _module("numpy")
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        raise AbsentError("this onnxruntime has no CUDA provider")
    helper, number = builder.helper, builder.TensorProto.FLOAT
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    ends = [helper.make_tensor_value_info(name, number, [64, 64]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "square", ends[:1], ends[1:]))
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CUDAExecutionProvider"]
    )
    _check("CUDAExecutionProvider" in session.get_providers(), "fell back to the CPU")
    x = numpy.ones((64, 64), numpy.float32)
    for _ in range(_ROUNDS):
        (y,) = session.run(None, {"x": x})
    _check(float(y[0, 0]) == 64.0, f"came to {float(y[0, 0])}")
    return f"{_ROUNDS} runs"


def profiler() -> str:
    """torch.profiler sees the kernels: CUPTI is free for it."""
    torch = _torch()
    x = torch.ones(_SIDE, _SIDE, device="cuda")
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(10):
            x = x @ x / _SIDE
        torch.cuda.synchronize()
    seen = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    _check(bool(seen), "no kernel was seen")
    return f"{len(seen)} events on the device"


def ddp() -> str:
    """A rank of a data-parallel training; torchrun starts it."""
    torch = _torch()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(_SIDE, _SIDE).cuda(), device_ids=[rank]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(_ROUNDS):
        model(torch.randn(64, _SIDE, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    here = next(model.parameters()).detach().double().sum()
    there = here.clone()
    torch.distributed.all_reduce(there)
    ranks = torch.distributed.get_world_size()
    torch.distributed.destroy_process_group()
    _check(abs(float(there - ranks * here)) < 1e-6 * ranks, "the ranks differ")
    return f"{_ROUNDS} steps on {ranks} GPU(s)"


def torchrun(ranks: int) -> str:
    """Torchrun with so many ranks, one a GPU."""
    torch = _torch()
    if torch.cuda.device_count() < ranks:
        raise AbsentError(f"needs {ranks} GPUs")
    command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(  # noqa: S603  # ourselves
        [sys.executable, "-m", *command, "-m", __spec__.name, "ddp"],
        capture_output=True,
        text=True,
        check=False,
    )
    _check(done.returncode == 0, done.stderr[-2000:])
    return done.stdout.strip().splitlines()[-1]


def hold() -> str:
    """Count on the GPU, one launch for each line read, until the input ends."""
    torch = _torch()
    x = torch.zeros(1 << 20, device="cuda")
    for _ in sys.stdin:
        x.add_(1)
        sys.stdout.write(f"{float(x[-1]):.0f}\n")
        sys.stdout.flush()
    return "held"


def checkpoint() -> str:
    """Lock, evict, restore and unlock a gated process, which then goes on where it was."""
    library = _module("cuda.core.checkpoint")
    gated = {**os.environ, **json.loads(os.environ["COMPAT_GATE"])}
    with subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-m", __spec__.name, "hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=gated,
    ) as held:
        try:
            _check(_ask(held) == "1", "did not start")
            process = library.Process(held.pid)
            process.lock(_LOCK_MILLISECONDS)
            process.checkpoint()
            process.restore()
            process.unlock()
            answer = _ask(held)
            _check(answer == "2", f"counted {answer!r} after it was restored")
        finally:
            held.kill()
    return "evicted and restored"


def _ask(process: subprocess.Popen[bytes]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    ready = select.select([process.stdout], [], [], _ANSWER_SECONDS)[0]
    return process.stdout.readline().decode().strip() if ready else "nothing"


def _torch() -> Any:
    torch = _module("torch")
    if not torch.cuda.is_available():
        raise AbsentError("no GPU here")
    return torch


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AbsentError(f"{name} is not installed") from error


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


PROGRAMS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "eager": eager,
        "compile": compiled,
        "graphs": graphs,
        "triton": triton,
        "jax": jax,
        "cupy": cupy,
        "onnxruntime": onnx,
        "profiler": profiler,
        "torchrun-1": lambda: torchrun(1),
        "torchrun-2": lambda: torchrun(2),
        "checkpoint": checkpoint,
    }
)
"""What is run under the gate, by name."""
_PARTS: Mapping[str, Callable[[], str]] = MappingProxyType({"ddp": ddp, "hold": hold})


def main(name: str) -> int:
    """Run one program and print what it did, or why it could not."""
    try:
        print((PROGRAMS.get(name) or _PARTS[name])())
    except AbsentError as absent:
        print(absent)
        return ABSENT
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1]))
