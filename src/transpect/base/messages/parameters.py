"""What each parameter of generation does, by its name: ``cli.param.NAME``."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.decoding": {"en": "How it writes:", "zh": "生成方式："},
    # how long
    "cli.param.max_new_tokens": {
        "en": "How many tokens at most; 128 unless the model's directory says otherwise.",
        "zh": "最多生成多少个词元；模型目录未另作规定时为 128。",
    },
    "cli.param.min_new_tokens": {
        "en": "How many tokens to write before it may end.",
        "zh": "至少生成多少个词元之后才可以结束。",
    },
    "cli.param.min_length": {
        "en": "How long prompt and output are together before it may end.",
        "zh": "提示与输出合计至少多长才可以结束。",
    },
    "cli.param.overflow": {
        "en": "What is done where prompt and --max-new-tokens exceed the context: error (default), stop ends there, "
        "sinks goes on with the first tokens and the last ones in sight.",
        "zh": "提示与 --max-new-tokens 合计超出上下文时怎么办：error 报错（默认），stop 到此为止，"
        "sinks 只看最前与最近的词元继续写。",
    },
    "cli.param.stop": {
        "en": "End before this text; can be given more than once.",
        "zh": "遇到这段文本即停止，不输出它；可多次给出。",
    },
    "cli.param.eos_ids": {
        "en": "A token that ends the output, instead of the model's own; can be given more than once.",
        "zh": "结束输出的词元编号，代替模型自己的；可多次给出。",
    },
    "cli.param.ignore_eos": {
        "en": "Let the tokens that end an output pass as ordinary ones.",
        "zh": "把结束词元当作普通词元，不因它而停止。",
    },
    "cli.param.forced_eos_token_id": {
        "en": "What the output ends with where there is no more room; can be given more than once.",
        "zh": "写满长度时用来收尾的词元编号；可多次给出。",
    },
    "cli.param.exponential_decay_length_penalty": {
        "en": "After N new tokens, make an end more probable with each further one, by a factor X.",
        "zh": "N 个新词元之后，每多一个便以因子 X 让结束更可能。",
    },
    # how random
    "cli.param.temperature": {
        "en": "0 always takes the most probable token, and is the default; 1 samples as the model learned, and is the "
        "default where another option or --seed asks for sampling; more is wilder.",
        "zh": "0 总取概率最大的词元（默认）；1 按模型学到的概率采样（由别的采样选项或 --seed 要求采样时即为默认）；"
        "更大则更随意。",
    },
    "cli.param.top_k": {
        "en": "Sample among the N most probable tokens.",
        "zh": "只在概率最大的 N 个词元中采样。",
    },
    "cli.param.top_p": {
        "en": "Sample among the fewest most probable tokens that together reach X.",
        "zh": "只在累计概率达到 X 的最可能词元中采样。",
    },
    "cli.param.min_p": {
        "en": "Sample among tokens with at least this share of the best one's probability.",
        "zh": "只在概率不低于最大概率这一比例的词元中采样。",
    },
    "cli.param.typical_p": {
        "en": "Sample among the fewest most typical tokens that together reach X.",
        "zh": "只在累计概率达到 X 的最典型词元中采样。",
    },
    "cli.param.epsilon_cutoff": {
        "en": "Sample among tokens with at least this probability.",
        "zh": "只在概率不低于 X 的词元中采样。",
    },
    "cli.param.eta_cutoff": {
        "en": "Sample among tokens with at least this probability, or less where the choice is open.",
        "zh": "只在概率不低于 X 的词元中采样；分布平坦时门槛更低。",
    },
    "cli.param.seed": {
        "en": "The same seed gives the same text.",
        "zh": "随机种子；种子相同，结果相同。",
    },
    "cli.param.n": {
        "en": "How many outputs; of sampling, each with the next seed.",
        "zh": "生成多少份；采样时种子依次加一。",
    },
    "cli.param.logprobs": {
        "en": "Report the N most probable tokens in the place of each, with --json.",
        "zh": "配合 --json，报告每个位置上概率最大的 N 个词元。",
    },
    # what it prefers and avoids
    "cli.param.repetition_penalty": {
        "en": "Above 1, tokens of the prompt and the output become less probable.",
        "zh": "大于 1 时，提示与输出中已有的词元变得更不可能。",
    },
    "cli.param.encoder_repetition_penalty": {
        "en": "Above 1, tokens of the source become more probable.",
        "zh": "大于 1 时，源文本中的词元变得更可能。",
    },
    "cli.param.presence_penalty": {
        "en": "Is taken from the logit of each token that was written.",
        "zh": "从每个已写出的词元的 logit 中减去 X。",
    },
    "cli.param.frequency_penalty": {
        "en": "Likewise, as many times as it was written.",
        "zh": "同上，按写出的次数累计。",
    },
    "cli.param.no_repeat_ngram_size": {
        "en": "No sequence of N tokens twice.",
        "zh": "任何 N 个词元的序列都不出现两次。",
    },
    "cli.param.encoder_no_repeat_ngram_size": {
        "en": "No sequence of N tokens of the source again.",
        "zh": "不重复源文本中任何 N 个词元的序列。",
    },
    "cli.param.dry_multiplier": {
        "en": "DRY: what it costs to go on with a repetition.",
        "zh": "DRY：延续重复的代价。",
    },
    "cli.param.dry_base": {
        "en": "DRY: how many times more it costs for each further token.",
        "zh": "DRY：每多重复一个词元，代价乘以 X。",
    },
    "cli.param.dry_allowed_length": {
        "en": "DRY: how long a repetition costs nothing.",
        "zh": "DRY：多长的重复不受罚。",
    },
    "cli.param.dry_penalty_last_n": {
        "en": "DRY: how many of the last tokens are looked at; none is all.",
        "zh": "DRY：只看最后多少个词元；none 为全部。",
    },
    "cli.param.dry_sequence_breakers": {
        "en": "DRY: ids across which nothing counts as a repetition; can be given more than once.",
        "zh": "DRY：跨过这些词元编号便不算重复；可多次给出。",
    },
    "cli.param.logit_bias": {
        "en": "ID=X: add X to the logit of a token; can be given more than once.",
        "zh": "ID=X：给某个词元的 logit 加上 X；可多次给出。",
    },
    "cli.param.sequence_bias": {
        "en": "ID,ID,…=X: add X to the logit of the token that would complete these; can be given more than once.",
        "zh": "ID,ID,…=X：给会补全这一序列的词元的 logit 加上 X；可多次给出。",
    },
    "cli.param.banned": {
        "en": "A token that is never written; can be given more than once.",
        "zh": "绝不写出的词元编号；可多次给出。",
    },
    "cli.param.bad_words": {
        "en": "ID,ID,…: a sequence that is never written; can be given more than once.",
        "zh": "ID,ID,…：绝不写出的词元序列；可多次给出。",
    },
    "cli.param.begin_suppress_tokens": {
        "en": "A token that the output never begins with; can be given more than once.",
        "zh": "输出绝不以之开头的词元编号；可多次给出。",
    },
    # how tokens are found
    "cli.param.num_beams": {
        "en": "Beam search: how many beginnings go on at once.",
        "zh": "束搜索：同时保留多少个候选开头。",
    },
    "cli.param.length_penalty": {
        "en": "Beam search: above 0 favours long outputs, below 0 short ones; 0 ranks by probability.",
        "zh": "束搜索：大于 0 偏向长的输出，小于 0 偏向短的；0 只按概率排序。",
    },
    "cli.param.early_stopping": {
        "en": "Beam search: yes ends once there are enough outputs, no once none that runs is better, never once none "
        "could become better.",
        "zh": "束搜索：yes 输出够数即止，no 进行中的都不更好时止，never 不可能更好时才止。",
    },
    "cli.param.renormalize_logits": {
        "en": "Beam search: normalise again after penalties, biases and bans.",
        "zh": "束搜索：惩罚、偏置与禁用之后重新归一化。",
    },
    "cli.param.num_beam_groups": {
        "en": "Diverse beam search: in how many groups, each of which avoids what those before it choose.",
        "zh": "多样束搜索：分成多少组，后组避开前组的选择。",
    },
    "cli.param.diversity_penalty": {
        "en": "Diverse beam search: how much a token loses for each beam that chose it.",
        "zh": "多样束搜索：每有一束选过某词元，它便被扣 X。",
    },
    "cli.param.penalty_alpha": {
        "en": "Contrastive search among the --top-k best: the share by which a token counts that is unlike those "
        "before it.",
        "zh": "对比搜索：在概率最大的 --top-k 个词元中，与前文不相似所占的权重。",
    },
    "cli.param.best_of": {
        "en": "Draw so many outputs, and give the most probable ones.",
        "zh": "采样这么多份，给出其中概率最大的。",
    },
    "cli.param.guidance_scale": {
        "en": "Above 1, lead away from what the model would write without the prompt, or with --negative-prompt.",
        "zh": "大于 1 时，远离没有提示（或换成 --negative-prompt）时模型会写的内容。",
    },
    "cli.param.negative_prompt": {
        "en": "What --guidance-scale leads away from.",
        "zh": "--guidance-scale 所要远离的提示。",
    },
    # how they are found faster
    "cli.param.prompt_lookup_num_tokens": {
        "en": "Guess up to N tokens by looking up the last ones in the prompt: faster, the same law. 0 never guesses.",
        "zh": "在前文中查找最后几个词元，一次猜出至多 N 个：更快，分布不变。0 从不猜测。",
    },
    "cli.param.max_matching_ngram_size": {
        "en": "How many of the last tokens to look up at first.",
        "zh": "起初用最后多少个词元去查找。",
    },
    "cli.param.draft": {
        "en": "A smaller model with the same vocabulary that drafts: faster, and the same law.",
        "zh": "用词表相同的小模型起草：更快，分布不变。",
    },
    "cli.param.early_exit": {
        "en": "Let the first N layers draft: the same law.",
        "zh": "由前 N 层起草：分布不变。",
    },
    "cli.param.num_assistant_tokens": {
        "en": "How many tokens a model drafts at a time.",
        "zh": "模型一次起草多少个词元。",
    },
    "cli.param.num_assistant_tokens_schedule": {
        "en": "constant, or heuristic: more after a draft that stayed whole, fewer after another.",
        "zh": "constant 固定；heuristic 草稿全被采纳则增加，否则减少。",
    },
    "cli.param.assistant_confidence_threshold": {
        "en": "Draft no further than a token of a lower probability.",
        "zh": "遇到概率更低的词元即停止起草。",
    },
    # what it must be like
    "cli.param.regex": {
        "en": "The output is a text that this regular expression matches as a whole.",
        "zh": "输出须整体匹配这个正则表达式。",
    },
    "cli.param.json_schema": {
        "en": "The output is a JSON text of this schema; @FILE reads it from a file.",
        "zh": "输出须是符合这一 JSON Schema 的 JSON；@FILE 从文件读取。",
    },
    "cli.param.grammar": {
        "en": "The output is a text of this grammar, in Lark or GBNF; @FILE reads it from a file.",
        "zh": "输出须符合这一文法（Lark 或 GBNF）；@FILE 从文件读取。",
    },
    "cli.param.choices": {
        "en": "The output is one of these texts; can be given more than once.",
        "zh": "输出须是这些文本之一；可多次给出。",
    },
}
