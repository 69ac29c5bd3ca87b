"""The serving process's end of the control plane: what it tells the child, and when."""

import sys

from decide.regions.test_former import row

from gearshift.decide.control import ChildProcess
from gearshift.decide.messages import Answer, read_news, write_answer
from gearshift.ir.snapshot import Snapshot
from gearshift.plan import Region

SILENT = (sys.executable, "-c", "import sys; sys.stdin.read()")


def test_what_was_measured_while_an_answer_is_due_is_told_with_the_next_question() -> None:
    control, told = ChildProcess(SILENT), list[str]()
    control._say = told.append  # type: ignore[method-assign]
    rows = (row(Region(ops=("a",)), 0.003),)
    try:
        control.ask(Snapshot(at_s=0.5, plan="p", trial=None, situation=None), [])
        control.ask(Snapshot(at_s=1.0, plan="p", trial=None, situation=None, measured=rows), [])
        assert len(told) == 1, "nobody is asked twice at a time"
        control._answers.append(write_answer(Answer()))
        control.ask(Snapshot(at_s=1.5, plan="p", trial=None, situation=None), [])
    finally:
        control.close()
    assert [read_news(line)[0].measured for line in told] == [(), rows]
