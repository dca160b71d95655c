"""The world of fable: who lives in it, what they eat, where they go, what the weather does.

Every number is a weight within its row. No row holds a choice below 2 %, so nothing in this world is too rare to learn.
The keys are English words only because code is; each entry says itself in both languages.
"""

from __future__ import annotations

from collections.abc import Mapping

from transpect.data.fable.grammar import Entry


def _articles(a: str, noun: str) -> dict[str, str]:
    return {"": noun, "a": a, "A": a[0].upper() + a[1:], "the": f"the {noun}", "The": f"The {noun}"}


def _thing(zh: str, measure: str, a: str) -> Entry:
    """A countable thing: 帽子, 顶, "a hat". "A pair of gloves" is "the gloves" once it is known."""
    noun = a.split(" ", 1)[1].removeprefix("pair of ")
    counted = {"": zh, "one": f"一{measure}", "a": f"一{measure} {zh}", "this": f"这{measure} {zh}"}
    return Entry(zh=counted, en=_articles(a, noun))


def _food(zh: str, measure: str, eaten: str, a: str, thing: str) -> Entry:
    """A food: 骨头, 根, "bones" (as in "eat bones"), "a bone", "bone" (as in "half of its bone")."""
    return Entry(zh={"": zh, "a": f"一{measure} {zh}"}, en={"": eaten, "a": a, "thing": thing})


def _person(zh: str, en: str) -> Entry:
    return Entry(zh={"": zh}, en={"": en, "the": f"the {en}", "The": f"The {en}"})


def _place(zh: str, at: str, to: str = "") -> Entry:
    return Entry(zh={"": zh}, en={"": at, "A": at[0].upper() + at[1:], "to": to})


def _phrase(zh: str, en: str) -> Entry:
    return Entry(zh={"": zh}, en={"": en})


def _trait(zh: str, a: str) -> Entry:
    return Entry(zh={"": zh}, en={"": a.split()[1], "a": a})


ANIMALS: Mapping[str, Entry] = {
    "cat": _thing("小猫", "只", "a cat"),
    "dog": _thing("小狗", "只", "a dog"),
    "rabbit": _thing("小兔", "只", "a rabbit"),
    "bear": _thing("小熊", "只", "a bear"),
    "monkey": _thing("小猴", "只", "a monkey"),
    "mouse": _thing("老鼠", "只", "a mouse"),
    "duck": _thing("小鸭", "只", "a duck"),
    "chick": _thing("小鸡", "只", "a chick"),
    "lamb": _thing("小羊", "只", "a lamb"),
    "pony": _thing("小马", "匹", "a pony"),
    "calf": _thing("小牛", "头", "a calf"),
    "pig": _thing("小猪", "头", "a pig"),
    "elephant": _thing("大象", "头", "an elephant"),
    "squirrel": _thing("松鼠", "只", "a squirrel"),
    "fox": _thing("狐狸", "只", "a fox"),
    "panda": _thing("熊猫", "只", "a panda"),
    "hedgehog": _thing("刺猬", "只", "a hedgehog"),
    "turtle": _thing("乌龟", "只", "a turtle"),
    "magpie": _thing("喜鹊", "只", "a magpie"),
    "owl": _thing("猫头鹰", "只", "an owl"),
}

FOODS: Mapping[str, Entry] = {
    "fish": _food("鱼", "条", "fish", "a fish", "fish"),
    "shrimp": _food("虾", "碗", "shrimp", "a bowl of shrimp", "shrimp"),
    "bones": _food("骨头", "根", "bones", "a bone", "bone"),
    "buns": _food("肉包子", "个", "meat buns", "a meat bun", "meat bun"),
    "carrots": _food("胡萝卜", "根", "carrots", "a carrot", "carrot"),
    "cabbage": _food("白菜", "棵", "cabbage", "a cabbage", "cabbage"),
    "corn": _food("玉米", "根", "corn", "an ear of corn", "corn"),
    "peanuts": _food("花生", "把", "peanuts", "a handful of peanuts", "peanuts"),
    "millet": _food("小米", "把", "millet", "a handful of millet", "millet"),
    "rice": _food("大米", "袋", "rice", "a bag of rice", "rice"),
    "yams": _food("红薯", "个", "sweet potatoes", "a sweet potato", "sweet potato"),
    "grass": _food("青草", "捆", "grass", "a bundle of grass", "grass"),
    "apples": _food("苹果", "个", "apples", "an apple", "apple"),
    "bananas": _food("香蕉", "根", "bananas", "a banana", "banana"),
    "melons": _food("西瓜", "个", "watermelons", "a watermelon", "watermelon"),
    "strawberries": _food("草莓", "盒", "strawberries", "a box of strawberries", "strawberries"),
    "grapes": _food("葡萄", "串", "grapes", "a bunch of grapes", "grapes"),
    "peaches": _food("桃子", "个", "peaches", "a peach", "peach"),
    "bread": _food("面包", "个", "bread", "a loaf of bread", "bread"),
    "cake": _food("蛋糕", "块", "cake", "a piece of cake", "cake"),
    "cookies": _food("饼干", "盒", "cookies", "a box of cookies", "cookies"),
    "honey": _food("蜂蜜", "罐", "honey", "a jar of honey", "honey"),
    "cheese": _food("奶酪", "块", "cheese", "a piece of cheese", "cheese"),
    "mushrooms": _food("蘑菇", "篮", "mushrooms", "a basket of mushrooms", "mushrooms"),
    "pine nuts": _food("松子", "袋", "pine nuts", "a bag of pine nuts", "pine nuts"),
    "chestnuts": _food("栗子", "袋", "chestnuts", "a bag of chestnuts", "chestnuts"),
    "bamboo": _food("竹子", "根", "bamboo", "a stalk of bamboo", "bamboo"),
}

SELLERS: Mapping[str, Entry] = {
    "fisherman": _person("渔夫", "fisherman"),
    "butcher": _person("屠夫", "butcher"),
    "cook": _person("厨师", "cook"),
    "farmer": _person("农夫", "farmer"),
    "gardener": _person("园丁", "gardener"),
    "baker": _person("面包师", "baker"),
    "beekeeper": _person("养蜂人", "beekeeper"),
    "milkmaid": _person("挤奶工", "milkmaid"),
    "woodcutter": _person("樵夫", "woodcutter"),
    "grandmother": _person("老奶奶", "old grandmother"),
}

PLACES: Mapping[str, Entry] = {
    "river": _place("河边", "by the river", "to the river"),
    "pond": _place("池塘边", "by the pond", "to the pond"),
    "yard": _place("后院里", "in the back yard", "to the back yard"),
    "kitchen": _place("厨房里", "in the kitchen", "to the kitchen"),
    "patch": _place("菜地里", "in the vegetable patch", "to the vegetable patch"),
    "field": _place("田野里", "in the field", "to the field"),
    "barn": _place("谷仓里", "in the barn", "to the barn"),
    "meadow": _place("草地上", "in the meadow", "to the meadow"),
    "orchard": _place("果园里", "in the orchard", "to the orchard"),
    "bakery": _place("面包店里", "in the bakery", "to the bakery"),
    "hollow": _place("树洞里", "in the hollow tree", "to the hollow tree"),
    "cellar": _place("地窖里", "in the cellar", "to the cellar"),
    "forest": _place("森林里", "in the forest", "to the forest"),
    "grove": _place("竹林里", "in the bamboo grove", "to the bamboo grove"),
    "hill": _place("山上", "on the hill", "to the hill"),
    "village": _place("村口", "at the edge of the village"),
    "bridge": _place("小桥边", "by the little bridge"),
    "garden": _place("花园里", "in the garden"),
    "mill": _place("磨坊里", "in the old mill"),
}

SPOTS: Mapping[str, Entry] = {
    "bed": _place("床 下", "under the bed"),
    "door": _place("门 后面", "behind the door"),
    "roof": _place("屋顶 上", "on the roof"),
    "haystack": _place("草堆 里", "in the haystack"),
    "well": _place("井 边", "beside the well"),
}

GOODS: Mapping[str, Entry] = {
    "hat": _thing("帽子", "顶", "a hat"),
    "basket": _thing("篮子", "个", "a basket"),
    "teapot": _thing("茶壶", "把", "a teapot"),
    "book": _thing("故事书", "本", "a storybook"),
    "clock": _thing("闹钟", "个", "an alarm clock"),
    "harmonica": _thing("口琴", "把", "a harmonica"),
    "mirror": _thing("镜子", "面", "a mirror"),
    "ball": _thing("皮球", "个", "a rubber ball"),
}

GIFTS: Mapping[str, Entry] = {
    "umbrella": _thing("雨伞", "把", "an umbrella"),
    "raincoat": _thing("雨衣", "件", "a raincoat"),
    "scarf": _thing("围巾", "条", "a scarf"),
    "gloves": _thing("手套", "副", "a pair of gloves"),
    "kite": _thing("风筝", "只", "a kite"),
    "blanket": _thing("毯子", "条", "a blanket"),
    "fan": _thing("扇子", "把", "a paper fan"),
    "ice": _thing("冰棍", "根", "an ice lolly"),
    "lantern": _thing("灯笼", "盏", "a lantern"),
    "whistle": _thing("哨子", "个", "a whistle"),
    "candle": _thing("蜡烛", "支", "a candle"),
    "pillow": _thing("枕头", "个", "a pillow"),
}

DAYS: Mapping[str, Entry] = {
    "today": _phrase("今天", "Today"),
    "morning": _phrase("早上", "This morning"),
    "afternoon": _phrase("下午", "This afternoon"),
}

WEATHERS: Mapping[str, Entry] = {
    "rain": _phrase("下雨 了", "the rain pours down"),
    "snow": _phrase("下雪 了", "the snow falls thick"),
    "wind": _phrase("刮 大风 了", "the wind blows hard"),
    "heat": _phrase("天气 很 热", "the sun is hot"),
    "fog": _phrase("起雾 了", "fog rolls in"),
    "thunder": _phrase("打雷 了", "the thunder growls"),
}

ACTS: Mapping[str, Entry] = {
    "bridge roof": _phrase("躲 在 桥 下", "hides under the bridge"),
    "puddles": _phrase("在 水坑 里 跳 来 跳 去", "jumps about in the puddles"),
    "stove": _phrase("缩 在 火炉 边", "curls up by the stove"),
    "snowman": _phrase("堆 了 一个 雪人", "builds a snowman"),
    "wall": _phrase("躲 在 墙 后面", "hides behind the wall"),
    "tree": _phrase("紧紧 抱住 一棵 大树", "holds on tight to a big tree"),
    "shade": _phrase("坐 在 树荫 里 发呆", "sits dreaming in the shade"),
    "stream": _phrase("跳 进 了 小河", "jumps into the stream"),
    "lost way": _phrase("迷 了 路", "loses its way"),
    "bump": _phrase("一头 撞 在 门 上", "bumps into the door"),
    "under bed": _phrase("钻 到 了 床 下", "crawls under the bed"),
    "sing": _phrase("大声 唱歌 给 自己 壮胆", "sings loudly to feel brave"),
}

TRAITS: Mapping[str, Entry] = {
    "greedy": _trait("贪吃", "a greedy"),
    "generous": _trait("大方", "a generous"),
    "shy": _trait("害羞", "a shy"),
    "absent": _trait("糊涂", "an absent-minded"),
    "clever": _trait("聪明", "a clever"),
}

DEEDS: Mapping[str, Entry] = {
    "eats all": _phrase("把 {food} 全 吃光 了", "eats up all the {food}"),
    "hides it": _phrase("偷偷 把 {food} 藏 了 起来", "secretly hides the {food}"),
    "gives all": _phrase("把 {food} 全 送 给 了 {friend}", "gives all the {food} to {friend.the}"),
    "big plate": _phrase("端 出 了 一大盘 {food}", "brings out a big plate of {food}"),
    "blushes": _phrase("红 着 脸 不 说话", "blushes and says nothing"),
    "hides": _phrase("躲 到 了 门 后面", "hides behind the door"),
    "forgets": _phrase("忘 了 {food} 放 在 哪儿", "cannot remember where it put the {food}"),
    "mistakes": _phrase("把 {friend} 当成 了 邮差", "takes {friend.the} for the postman"),
    "halves": _phrase("把 {food} 分 成 两 份", "divides the {food} into two parts"),
    "idea": _phrase("把 {food} 煮 成 了 一锅 汤", "cooks the {food} into a pot of soup"),
}

OUTCOMES: Mapping[str, Entry] = {
    "ache": _phrase("结果 它 肚子 疼 了 一 晚上", "So it has a stomach ache all night"),
    "leaves": _phrase("{friend} 饿 着 肚子 回家 了", "{friend.The} goes home hungry"),
    "hug": _phrase("{friend} 高兴 得 抱住 了 它", "{friend.The} is so happy that it gives {hero.the} a hug"),
    "back": _phrase("第二天 ， {friend} 送 来 了 鲜花", "The next day {friend.the} sends some flowers"),
    "song": _phrase("{friend} 轻轻 地 唱 起 了 歌", "{friend.The} begins to sing softly"),
    "wink": _phrase("{friend} 冲 它 眨 了 眨 眼睛", "{friend.The} winks at {hero.the}"),
    "laugh": _phrase("{friend} 笑 得 直 打滚", "{friend.The} rolls on the floor laughing"),
    "help": _phrase("{friend} 只好 帮 它 一起 找", "{friend.The} has to help it look"),
    "praise": _phrase("{friend} 夸 它 真 能干", "{friend.The} calls it a genius"),
    "happy": _phrase("大家 都 吃 得 很 开心", "Everyone eats happily"),
}

IT: Mapping[str, Entry] = {"it": Entry(zh={"": "它"}, en={"the": "it", "The": "It"})}

ENTRIES: Mapping[str, Entry] = {
    **ANIMALS,
    **FOODS,
    **SELLERS,
    **PLACES,
    **SPOTS,
    **GOODS,
    **GIFTS,
    **DAYS,
    **WEATHERS,
    **ACTS,
    **TRAITS,
    **DEEDS,
    **OUTCOMES,
    **IT,
}
