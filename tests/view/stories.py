"""Stories made up for drawing."""

from gearshift.plan.decision import Decision
from gearshift.view.story import Box, Call, Cost, Crowd, Reading, Series, Span, Story


def boxes(count: int, *, backends: tuple[str, ...] = ("onnxruntime", "openvino")) -> list[Box]:
    """A chain, with a skip from the first to the last."""
    made = []
    for index in range(count):
        feeds = [f"r{index + 1}"] if index + 1 < count else []
        if index == 0 and count > 2:
            feeds.append(f"r{count - 1}")
        made.append(
            Box(
                name=f"r{index}",
                title=f"block.{index}",
                num_ops=3,
                engine=f"cpu:{index % 2}",
                backend=backends[index % len(backends)],
                rewrite=f"{backends[index % len(backends)]} x1",
                feeds=tuple(feeds),
                mean_s=0.001 * (index + 1),
            )
        )
    return made


def story(*, model: str = "mine", regions: int = 3) -> Story:
    calls = [
        Call(at_s=0.01 * i, call_s=0.02 if i < 200 else 0.01, plan="eager" if i < 200 else "fast")
        for i in range(1000)
    ]
    decision = Decision(
        at_s=2.0,
        plan="f1",
        summary="fast",
        reason="may be better",
        outcome="serves: 50% faster",
        number=1,
    )
    spans = [
        Span(
            region=b.name,
            engine=b.engine,
            backend=b.backend,
            rewrite=b.rewrite,
            begin_s=i * 0.1,
            end_s=i * 0.1 + 0.2,
        )
        for i, b in enumerate(boxes(regions))
    ]
    return Story(
        model=model,
        facts={"cpu": "a <cpu>", "torch": "2.13"},
        calls=calls,
        end_s=0.01,
        reference_s=0.02,
        crowds=[Crowd(begin_s=4.0, end_s=6.0, neighbours=1)],
        decisions=[decision],
        boxes=boxes(regions),
        spans=[spans],
        one_call=spans,
        costs=[Cost(name="cost of monitoring", text="0.6%")],
        readings=[
            Reading(name="cpu.busy_share", text="50%", source="measured", origin="/proc/stat"),
            Reading(name="energy", text="", source="unavailable", origin="no RAPL"),
        ],
        counters=[Series(name="neighbours", points=((0.0, 0.0), (4.0, 1.0), (6.0, 0.0)))],
    )
