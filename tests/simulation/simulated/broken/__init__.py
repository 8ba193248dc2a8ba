"""Parts that are broken on purpose, to see that somebody notices: each like a bug that real agents have had."""

from .doors import (
    deaf_to_stops,
    forgetting_receipts,
    losing_messages,
    stopping_anybody,
    with_door,
    with_options,
    withdrawing_nothing,
    without_edits,
)
from .logs import (
    LogThatDoublesLateRows,
    LogThatForgetsRefusals,
    LogThatHangs,
    LogThatInterrupts,
    LogThatLosesLateRows,
    LogThatLosesResults,
    LogThatMixesResultsUp,
    LogThatRewrites,
)
from .loops import (
    LoopThatAddsLater,
    LoopThatEndsSilently,
    LoopThatHidesErrors,
    LoopThatLivesOn,
    LoopThatTurnsProvidersRound,
    with_loop,
)
from .queues import QueueNewestFirst, QueueThatDoubles, QueueThatForgets, QueueWithoutHaste, with_queue
from .telling import counting_double, forgetting_calls, mumbling, praising_calls, reporting_late, with_progress
from .tools import CannotWait, LooksHarmless, NeverEnds, mount_harming_tools, with_tools

__all__ = [
    "CannotWait",
    "LogThatDoublesLateRows",
    "LogThatForgetsRefusals",
    "LogThatHangs",
    "LogThatInterrupts",
    "LogThatLosesLateRows",
    "LogThatLosesResults",
    "LogThatMixesResultsUp",
    "LogThatRewrites",
    "LooksHarmless",
    "LoopThatAddsLater",
    "LoopThatEndsSilently",
    "LoopThatHidesErrors",
    "LoopThatLivesOn",
    "LoopThatTurnsProvidersRound",
    "NeverEnds",
    "QueueNewestFirst",
    "QueueThatDoubles",
    "QueueThatForgets",
    "QueueWithoutHaste",
    "counting_double",
    "deaf_to_stops",
    "forgetting_calls",
    "forgetting_receipts",
    "losing_messages",
    "mount_harming_tools",
    "mumbling",
    "praising_calls",
    "reporting_late",
    "stopping_anybody",
    "with_door",
    "with_loop",
    "with_options",
    "with_progress",
    "with_queue",
    "with_tools",
    "withdrawing_nothing",
    "without_edits",
]
