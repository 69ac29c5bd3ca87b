"""The command line: what may be asked for, with help; results to stdout, progress to stderr.

Loads nothing heavy before a command runs: help and completion answer at once. What commands do is
in `commands.py`.
"""

import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from gearshift.decide.policy import POLICIES
from gearshift.errors import GearshiftError, UsageError, VerifyError
from gearshift.results import alone

MODELS = ("resnet18", "mobilenet_v2", "minilm", "mlp", "lstm_tagger", "unet", "two_tower")
BENCHMARKS = ("overhead", "regions", "rnn", "runtime", "split")
STEPS = {"split": 20_000, "rewrite": 20_000, "unroll": 100_000}
AGENTS = tuple(STEPS)

app = typer.Typer(
    help="Runs a PyTorch model and keeps changing how it runs, while its outputs stay the same.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    str,
    typer.Argument(
        help=f"A built-in name ({', '.join(MODELS)}; resnet18@8 for 8 times the rows),"
        " package.module:factory, file.py:factory, a .pt2 or an .onnx file. A factory takes no"
        " arguments and returns (model, example_inputs).",
        autocompletion=lambda: list(MODELS),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Backends = Annotated[
    str,
    typer.Option(help="Which backends to try, separated by commas; all that are here if empty."),
]


@app.command()
def run(
    model: Model = "resnet18",
    plan: Annotated[
        Path | None, typer.Option(help="Run this plan (JSON) and change nothing.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the plan in force at the end to this file.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to run.")] = 20.0,
    policy: Annotated[
        str,
        typer.Option(
            help=f"Who decides: {', '.join(POLICIES)}; bandit if empty.",
            autocompletion=lambda: list(POLICIES),
        ),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(help="Write what happened as one HTML page to this file, not report.html."),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace (JSON), to open in Perfetto.")
    ] = None,
    neighbour: Annotated[
        bool, typer.Option("--neighbour", help="Have a busy process come and go on the last core.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Adapt a model and run it, now and then as it was; show it live, tell what was decided.

    Example: gearshift run resnet18 --neighbour --seconds 40
    Example: gearshift run my_model.py:make --trace trace.json --export best.json
    """
    from gearshift import commands

    commands.run(
        model,
        plan=plan,
        export=export,
        seconds=seconds,
        policy=policy,
        report=report,
        no_report=no_report,
        trace=trace,
        neighbour=neighbour,
        as_json=as_json,
    )


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what this machine can measure and run, try each backend, and tell what is missing.

    Example: gearshift doctor
    Example: gearshift doctor --json
    """
    from gearshift import commands

    commands.doctor(as_json=as_json)


@app.command()
def profile(
    model: Model = "resnet18",
    granularity: Annotated[
        int,
        typer.Option(
            min=0, help="How many levels of modules, then of data flow, down; 0: one region."
        ),
    ] = 1,
    engine: Annotated[str, typer.Option(help="Where to run: caller, cpu:0, cpu:0-1.")] = "caller",
    seconds: Annotated[float, typer.Option(min=0.01, help="Per region and setting.")] = 0.3,
    backends: Backends = "eager,onnxruntime,openvino",
    library: Annotated[
        bool, typer.Option("--library", help="Also by every option: layouts, tiles, buffers.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with the roofline to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure each region of a model: against the machine's roofline, and by every setting.

    Example: gearshift profile minilm --granularity 2 --report profile.html
    """
    from gearshift import commands

    commands.profile(
        model,
        granularity=granularity,
        engine=engine,
        seconds=seconds,
        backends=backends,
        library=library,
        report=report,
        as_json=as_json,
    )


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help=f"Which: {', '.join(BENCHMARKS)}.", autocompletion=lambda: list(BENCHMARKS)
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="May be given several times; default: a few built-in. Of overhead built-in names"
            " only; of rnn lstm_l2_h256_t100_b8_uniform and the like; of split without the regions"
            " that it measures by themselves.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Per case, of overhead.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="What happens around the model, and when.")] = 0,
    quick: Annotated[bool, typer.Option(help="Fewer cases, shorter: about 5 minutes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure side by side on this machine; ratios above 1 mean Gearshift is better.

    Example: gearshift bench runtime --quick --seed 3
    Example: gearshift bench overhead --json
    """
    if name not in BENCHMARKS:
        raise UsageError(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    from gearshift import commands

    commands.bench(name, model, seconds=seconds, seed=seed, quick=quick, as_json=as_json)


@app.command()
def train(
    knob: Annotated[
        str,
        typer.Argument(help=f"Which: {', '.join(AGENTS)}.", autocompletion=lambda: list(AGENTS)),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is random.")] = 1,
    steps: Annotated[
        int | None,
        typer.Option(min=1000, help="Choices it learns from; 20000 if empty, or 100000 (unroll)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to; made if missing.")] = Path(
        "agent"
    ),
    profiles: Annotated[
        Path | None, typer.Option(help="Regions or kernels to train on, recorded before (JSON).")
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="First measure regions, or kernels, on this machine: up to half an hour.",
        ),
    ] = False,
    episodes: Annotated[
        int,
        typer.Option(
            min=1,
            help="All players are compared on so many traces of 60 choices (split) or 40 calls"
            " (unroll), or so many times on every region (rewrite).",
        ),
    ] = 40,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="Also put the agent into GEARSHIFT_HOME/agents, in place of what was learned"
            " there: where an agent chooses, it starts with this one from now on.",
        ),
    ] = False,
    balance: Annotated[
        float | None, typer.Option(min=0, help="What equal load of a split earns; 0.05 if empty.")
    ] = None,
    transfer: Annotated[
        float | None, typer.Option(min=0, help="What bytes a split moves cost; 0.05 if empty.")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="What bytes cost that a split holds, or an unroll beyond its limit; 0.02, or 1,"
            " if empty.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train an agent in the simulator: its weights, its learning curve, how it stands.

    Example: gearshift train split --seed 1 --out agent
    Example: gearshift train rewrite --record --install
    Example: gearshift train unroll --seed 1 --out agent
    """
    if knob not in AGENTS:
        raise UsageError(f"no agent for {knob!r}; there are {', '.join(AGENTS)}")
    if record and profiles is not None:
        raise UsageError("--record and --profiles exclude each other")
    from gearshift import commands
    from gearshift.training import Training

    weights = {"balance": balance, "transfer": transfer, "memory": memory}
    training = Training(
        knob=knob,
        seed=seed,
        steps=steps or STEPS[knob],
        out=out,
        profiles=profiles,
        record=record,
        weights={name: weight for name, weight in weights.items() if weight is not None},
        episodes=episodes,
        install=install,
    )
    commands.train(training, as_json=as_json)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    try:
        with alone() if "--json" in sys.argv else nullcontext():
            app()
    except GearshiftError as error:
        from gearshift.console import progress

        text = " ".join(str(error).split())
        progress.print(f"error: {text}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _exit_code(error: GearshiftError) -> int:
    if isinstance(error, UsageError):
        return 2
    return 3 if isinstance(error, VerifyError) else 1
