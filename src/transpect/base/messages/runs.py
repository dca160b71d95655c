"""The command runs: its help, its tables, and the words of its page."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.runs": {
        "en": "List training runs, compare them, and draw their curves.\n\n"
        "`transpect runs [DIR]` lists the runs in or below a directory; `transpect runs compare RUN RUN …` shows in "
        "which keys their recipes differ, their curves and their best. With --html, as a page that needs no network.",
        "zh": "列出、对比各次训练，并绘出曲线。\n\n"
        "transpect runs [DIR] 列出目录中（及其下）的训练；transpect runs compare RUN RUN … "
        "给出配方的不同之处、曲线与最佳结果。"
        "加 --html 则写成一个离线可用的网页。",
    },
    "cli.runs.words": {
        "en": "A directory (runs when not given), or compare and two or more runs.",
        "zh": "目录（默认 runs），或 compare 加两次以上的训练。",
    },
    "cli.runs.html": {"en": "Write the runs as a page into this file.", "zh": "把这些训练写成网页，存入该文件。"},
    "cli.runs.measure": {
        "en": "What the curves show: loss and valid_loss, or these, parted by commas.",
        "zh": "曲线所示的指标：默认 loss 与 valid_loss；多个以逗号分隔。",
    },
    "cli.runs.none": {"en": "There are no runs in {folder}.", "zh": "{folder} 中没有训练。"},
    "cli.runs.written": {"en": "{count} runs, drawn in {path}", "zh": "{count} 次训练，已绘入 {path}"},
    "cli.runs.same": {"en": "Their recipes are the same.", "zh": "它们的配方相同。"},
    "cli.runs.unread": {"en": "left out: {error}", "zh": "略去：{error}"},
    "runs.title": {"en": "Training runs", "zh": "训练记录"},
    "runs.curves": {"en": "Curves over steps", "zh": "曲线（横轴为步数）"},
    "runs.differing": {"en": "Where the recipes differ", "zh": "配方的不同之处"},
    "runs.log": {"en": "logarithmic", "zh": "对数坐标"},
    "runs.smoothing": {"en": "smoothing", "zh": "平滑"},
    "runs.column.run": {"en": "run", "zh": "训练"},
    "runs.column.state": {"en": "state", "zh": "状态"},
    "runs.column.steps": {"en": "steps", "zh": "步数"},
    "runs.column.best": {"en": "best", "zh": "最佳"},
    "runs.column.speed": {"en": "tokens/s", "zh": "词元／秒"},
    "runs.column.seconds": {"en": "seconds", "zh": "用时（秒）"},
    "runs.column.age": {"en": "last line", "zh": "最近记录"},
    "runs.column.loss": {"en": "loss", "zh": "损失"},
    "runs.column.key": {"en": "key", "zh": "配置项"},
    "runs.state.finished": {"en": "finished", "zh": "已完成"},
    "runs.state.early": {"en": "stopped early", "zh": "提前停止"},
    "runs.state.active": {"en": "active", "zh": "进行中"},
    "runs.state.stopped": {"en": "stopped", "zh": "已停止"},
    "runs.ago": {"en": "{age} ago", "zh": "{age} 前"},
}
