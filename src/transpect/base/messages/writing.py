"""What the commands say that use a trained model: generate, chat, translate, score, embed, fill-mask."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.batch_size": {"en": "How many rows are computed at a time.", "zh": "一次计算多少行。"},
    "cli.cache": {
        "en": "What is remembered, and how: dense (the default), int8, or with options, as in "
        "'{{kind: sinks, n_sinks: 4, memory: 512}}' or '{{kind: static, length: 1024}}'.",
        "zh": "记住什么、如何存放：dense（默认）、int8，或带选项，例如 '{{kind: sinks, n_sinks: 4, memory: 512}}'、"
        "'{{kind: static, length: 1024}}'。",
    },
    "cli.runtime": {
        "en": "What computes the steps after a prompt: torch, program (a decode program, on a CPU), or auto, which "
        "takes a program where there is one for a model that is not small.",
        "zh": "由什么计算提示之后的各步：torch、program（CPU 解码程序），或 auto：模型不小且有相应程序时用程序。",
    },
    "cli.adapter": {
        "en": "A LoRA or DoRA adapter for the model: a directory of PEFT, or a run that trained one.",
        "zh": "模型的 LoRA 或 DoRA 适配器：PEFT 目录，或训练出它的运行目录。",
    },
    "cli.quant": {
        "en": "Put the weights into few bits while loading: int8, int8-group, int4, int4-zero, q8_0, q4_0, …; keep "
        "leaves the blocks of a GGUF file as they are.",
        "zh": "加载时将权重量化：int8、int8-group、int4、int4-zero、q8_0、q4_0 等；keep 保留 GGUF 文件中的量化块。",
    },
    # generate
    "cli.generate.text": {
        "en": "The text to continue; - or nothing reads it from standard input.",
        "zh": "要续写的文本；用 - 或留空则从标准输入读取。",
    },
    "cli.generate.prompts": {
        "en": "Continue each prompt of a file: .txt with one a line, or .jsonl with `prompt` (or `messages`), and "
        "perhaps `id` and `params`, on each line.",
        "zh": "续写文件中的每一条提示：.txt 每行一条；.jsonl 每行含 prompt（或 messages），还可含 id 与 params。",
    },
    "cli.generate.out": {
        "en": "The .jsonl file for the outputs of --prompts. One that is there is gone on with, if it was begun with "
        "the same prompts, model and options.",
        "zh": "--prompts 的输出文件（.jsonl）。若它已存在，且提示、模型与选项都相同，则从中断处继续。",
    },
    "cli.generate.chat": {
        "en": "Take the text for the message of a user, and answer it by the model's chat template.",
        "zh": "把文本当作用户的一条消息，按模型的对话模板作答。",
    },
    "cli.generate.stream": {
        "en": "Show the text as it comes; the default on a terminal.",
        "zh": "边生成边显示；在终端中为默认。",
    },
    "cli.generate.only_new": {
        "en": "Leave the given text out and print the continuation alone.",
        "zh": "不打印给定的文本，只打印续写部分。",
    },
    "cli.generate.memory": {
        "en": "See only so many tokens back, and go on beyond the model's context.",
        "zh": "只看前面这么多词元，由此可以超出模型的上下文长度继续写。",
    },
    "cli.generate.progress": {"en": "prompts", "zh": "提示"},
    "cli.generate.saved": {
        "en": "{path}: {outputs} outputs for {prompts} prompts",
        "zh": "{path}：{prompts} 条提示，{outputs} 份输出",
    },
    # chat
    "cli.chat": {
        "en": "Talk with a model by its chat template; /help lists what can be done with the conversation.",
        "zh": "按模型的对话模板与它交谈；输入 /help 查看可用的命令。",
    },
    "cli.chat.system": {"en": "What the model is told before the conversation.", "zh": "对话之前给模型的指示。"},
    "cli.chat.load": {"en": "Go on with a conversation that /save wrote.", "zh": "接着 /save 保存的对话继续。"},
    "cli.chat.template": {
        "en": "Another chat template: the name of one of the tokenizer's, or a file of Jinja.",
        "zh": "换用别的对话模板：分词器中模板的名称，或 Jinja 文件。",
    },
    "cli.chat.help": {
        "en": "Commands:\n"
        "  /help               this list\n"
        "  /system [TEXT]      what the model is told before the conversation; nothing takes it away\n"
        "  /history            the conversation, its messages numbered\n"
        "  /undo               take back the last message of yours and all after it\n"
        "  /retry              answer the last message of yours anew; with sampling, with another seed\n"
        "  /edit [N] TEXT      another text for message N (your last one): what comes after it is dropped, and a\n"
        "                      message of yours is answered\n"
        "  /reset              forget the conversation, but not what /system says\n"
        "  /params             the parameters of generation that were set\n"
        "  /set NAME VALUE     set one: /set temperature 0.7\n"
        "  /unset NAME         leave it to the model again\n"
        "  /save FILE          write the conversation as JSON\n"
        "  /load FILE          go on with one that was saved\n"
        "  /quit               end; so does Ctrl-D. Ctrl-C ends an answer\n"
        "A message that begins with a slash is written with two: //etc is a folder.",
        "zh": "命令：\n"
        "  /help               显示本列表\n"
        "  /system [TEXT]      对话之前给模型的指示；留空则取消\n"
        "  /history            显示对话，消息带编号\n"
        "  /undo               撤回你的上一条消息及其后的内容\n"
        "  /retry              重新回答你的上一条消息；采样时换用新种子\n"
        "  /edit [N] TEXT      改写第 N 条消息（默认是你的上一条），其后的内容删去；若是你的消息则重新回答\n"
        "  /reset              忘掉对话，但保留 /system 的指示\n"
        "  /params             显示已设定的生成参数\n"
        "  /set NAME VALUE     设定一项：/set temperature 0.7\n"
        "  /unset NAME         恢复由模型决定\n"
        "  /save FILE          把对话存为 JSON\n"
        "  /load FILE          接着已保存的对话继续\n"
        "  /quit               结束；Ctrl-D 亦可。Ctrl-C 中断回答\n"
        "以斜线开头的消息须写两条斜线：//etc 是一个目录。",
    },
    "cli.chat.greeting": {
        "en": "Type a message, or /help.",
        "zh": "请输入消息，或输入 /help。",
    },
    "cli.chat.saved": {"en": "{path}: {n} messages", "zh": "{path}：{n} 条消息"},
    "cli.chat.undone": {"en": "taken back: {text}", "zh": "已撤回：{text}"},
    "cli.chat.cut": {"en": "(the answer was cut: no more room)", "zh": "（已达长度上限，回答被截断）"},
    "cli.chat.stopped": {"en": "(stopped)", "zh": "（已中断）"},
    # translate
    "cli.translate": {
        "en": "Translate a text, or each line of a file, with an encoder–decoder: by beam search with 4 beams.",
        "zh": "用编码器–解码器翻译一段文本或文件的每一行：默认 4 束的束搜索。",
    },
    "cli.translate.text": {
        "en": "The text to translate; - or nothing reads it from standard input, a text a line.",
        "zh": "要翻译的文本；用 - 或留空则从标准输入读取，每行一条。",
    },
    "cli.translate.to": {
        "en": "For a model of many languages, the token of the one to answer in, as it spells it: de_DE, deu_Latn.",
        "zh": "多语言模型的目标语言词元，按其词表的写法：de_DE、deu_Latn。",
    },
    # what reads texts
    "cli.texts.file": {
        "en": "A file of texts: .txt with one a line, or .jsonl with `text` on each.",
        "zh": "文本文件：.txt 每行一条，或 .jsonl 每行含 text。",
    },
    "cli.texts.text": {
        "en": "Texts; - or nothing reads them from standard input, one a line.",
        "zh": "文本；用 - 或留空则从标准输入读取，每行一条。",
    },
    "cli.embed": {
        "en": "Turn texts into vectors with a sentence encoder.",
        "zh": "用句子编码器把文本变为向量。",
    },
    "cli.embed.out": {
        "en": "Where the vectors go: .npy for an array [texts, width], .jsonl for a line a text; standard output when "
        "not given, as .jsonl.",
        "zh": "向量的去处：.npy 为数组 [文本数, 宽度]，.jsonl 每行一条；不给则以 .jsonl 输出到标准输出。",
    },
    "cli.embed.truncate": {
        "en": "Cut texts that are longer than the encoder reads, instead of refusing them.",
        "zh": "超出编码器可读长度的文本截断，而不是报错。",
    },
    "cli.embed.saved": {"en": "{path}: {n} vectors of {width} numbers", "zh": "{path}：{n} 个向量，每个 {width} 维"},
    "cli.fill-mask": {
        "en": "Guess the masked tokens of a text with a masked language model.",
        "zh": "用掩码语言模型猜出文本中被遮住的词元。",
    },
    "cli.fill-mask.text": {
        "en": "A text with masks, spelled as the model spells them, e.g. [MASK]; - or nothing reads it from standard "
        "input.",
        "zh": "带掩码的文本，掩码按模型的写法，例如 [MASK]；用 - 或留空则从标准输入读取。",
    },
    "cli.fill-mask.k": {"en": "How many guesses for each.", "zh": "每处给出多少个猜测。"},
    "cli.score": {
        "en": "Say how probable texts are: log-probability, perplexity, bits per character.",
        "zh": "给出文本的概率：对数概率、困惑度与每字符比特数。",
    },
    "cli.score.given": {
        "en": "Score each text given this one before it: a prompt, or the source of an encoder–decoder.",
        "zh": "以这段文本为前文（或编码器–解码器的源文本）来计算。",
    },
    "cli.score.pairs": {
        "en": "A file of pairs, source and target on each line, parted by a tab (.tsv).",
        "zh": "成对文本的文件（.tsv），每行的源与目标以制表符分隔。",
    },
    "cli.score.stride": {
        "en": "Read what is longer than the context in windows, each so many tokens further on.",
        "zh": "超出上下文的文本分窗读取，每窗前移这么多词元。",
    },
    "cli.score.column.logprob": {"en": "log-probability", "zh": "对数概率"},
    "cli.score.column.perplexity": {"en": "perplexity", "zh": "困惑度"},
    "cli.score.column.bits": {"en": "bits/character", "zh": "比特／字符"},
    "cli.score.column.tokens": {"en": "tokens", "zh": "词元数"},
    "cli.score.column.text": {"en": "text", "zh": "文本"},
}
