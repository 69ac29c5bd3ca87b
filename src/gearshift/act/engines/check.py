"""A checker that anyone can run on an engine of their own.

Must not know which engine it is.
"""

from gearshift.act.engines.protocol import Engine
from gearshift.errors import EngineError


def check_engine(engine: Engine) -> None:
    """Raises AssertionError, saying which duty of the protocol is not met. Closes the engine."""
    assert engine.spec.name, "an engine has a name"
    assert engine.call(lambda: 7) == 7, "call gives what the work returns"
    jobs = [engine.start(lambda a, b: a + b, (i, 1)) for i in range(5)]
    assert [job.result() for job in jobs] == [1, 2, 3, 4, 5], "each job has its own result"
    assert jobs[0].result() == 1, "a result can be asked for twice"
    stretches = [stretch for job in jobs for stretch in job.stretches]
    assert len(stretches) >= len(jobs), "a job that is done tells who worked when"
    assert all(begin_s <= end_s for _, begin_s, end_s, _ in stretches), "from and to"
    failed = engine.start(_divide, (1, 0))
    try:
        failed.result()
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("result raises what the work raised")
    assert engine.call(lambda: 8) == 8, "an engine survives work that raises"
    engine.close()
    engine.close()
    if engine.spec.kind == "caller":
        return
    try:
        engine.start(_divide, (1, 1))
    except EngineError:
        return
    raise AssertionError("a closed engine refuses work with EngineError")


def _divide(a: int, b: int) -> float:
    return a / b
