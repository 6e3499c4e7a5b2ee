"""Who has used how much of what a device drew."""

from __future__ import annotations

import pytest
from tests.cli.frames import device

from treadle.monitor.energy import EnergyBook, samples_per_watt_hour, split


def test_energy_is_shared_out_by_work() -> None:
    assert split(100.0, {"a": 3.0, "b": 1.0, "c": 0.0}) == {"a": 75.0, "b": 25.0, "c": 0.0}


def test_nobody_is_charged_while_nobody_works() -> None:
    assert split(100.0, {"a": 0.0}) == {"a": 0.0}
    assert split(100.0, {}) == {}


def test_a_device_with_a_counter_is_charged_by_it() -> None:
    book: EnergyBook[str] = EnergyBook()
    book.look(device(energy=1000.0, power=1.0), {"a": 5.0}, 0.0)
    assert book.joules("GPU-0") is None
    book.look(device(energy=1500.0, power=1.0), {"a": 6.0, "new": 9.0}, 10.0)
    assert book.joules("GPU-0") == 500.0
    assert book.tasks == {"a": 500.0}
    book.look(device(energy=1600.0), {"a": 7.0, "new": 10.0}, 20.0)
    assert book.tasks == {"a": 550.0, "new": 50.0}
    book.check_integrity()


def test_without_a_counter_power_is_integrated() -> None:
    book: EnergyBook[str] = EnergyBook()
    for at, power in ((0.0, 100.0), (10.0, 200.0), (12.0, 200.0)):
        book.look(device(power=power), {}, at)
    assert book.joules("GPU-0") == pytest.approx(1500.0 + 400.0)


def test_what_is_not_known_is_not_charged() -> None:
    book: EnergyBook[str] = EnergyBook()
    book.look(device(power=None), {"a": 0.0}, 0.0)
    book.look(device(power=None), {"a": 1.0}, 1.0)
    assert book.joules("GPU-0") is None
    assert book.joules("no such device") is None
    assert book.tasks == {}


def test_a_counter_that_began_anew_charges_nothing_for_once() -> None:
    book: EnergyBook[str] = EnergyBook()
    for at, energy in ((0.0, 1000.0), (1.0, 5.0), (2.0, 10.0)):
        book.look(device(energy=energy), {"a": at}, at)
    assert book.joules("GPU-0") == 5.0


def test_who_worked_while_the_counter_was_not_read_pays_too() -> None:
    """It is read each second and looked at twice: ``a`` works in the first half, ``b`` after."""
    book: EnergyBook[str] = EnergyBook()
    for half in range(21):
        second, odd = divmod(half, 2)
        work = {"a": 0.5 * (second + odd), "b": 0.5 * second}
        book.look(device(energy=100.0 * second), work, half / 2)
    assert book.joules("GPU-0") == 1000.0
    assert book.tasks == {"a": pytest.approx(500.0), "b": pytest.approx(500.0)}
    book.check_integrity()


def test_what_the_counter_counted_while_it_could_not_be_read_is_not_lost() -> None:
    book: EnergyBook[str] = EnergyBook()
    for at, energy in ((0.0, 100.0), (1.0, None), (2.0, None), (3.0, 400.0)):
        book.look(device(energy=energy), {"a": at}, at)
    assert book.joules("GPU-0") == 300.0
    assert book.tasks == {"a": 300.0}


def test_what_was_taken_from_power_meanwhile_is_not_counted_twice() -> None:
    book: EnergyBook[str] = EnergyBook()
    for at, energy in ((0.0, 100.0), (1.0, None), (2.0, None), (3.0, 400.0)):
        book.look(device(energy=energy, power=90.0), {"a": at}, at)
        book.check_integrity()
    assert book.joules("GPU-0") == 300.0
    assert book.tasks == {"a": pytest.approx(300.0)}


def test_samples_for_energy() -> None:
    assert samples_per_watt_hour(100.0, 3600.0) == 100.0
    assert samples_per_watt_hour(100.0, 0.0) is None
    assert samples_per_watt_hour(100.0, None) is None
