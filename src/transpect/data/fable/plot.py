"""The plots of fable: which sentence may follow which.

start ─┬─ middle ─┬─ (weather) visit ── thanks ── two
       │          ├─ (market)  trade ── road ── meet
       │          ├─ (search)  luck ─┬─ one
       │          │                  ├─ feast ── two
       │          │                  └─ comfort ── two
       │          └─ (loss)    found ─┬─ thanks ── two
       │                              └─ relief
       └─ guest ── deed ── outcome
"""

from __future__ import annotations

from collections.abc import Mapping

from transpect.data.fable.chances import SLOTS
from transpect.data.fable.grammar import Frame, Grammar
from transpect.data.fable.world import ENTRIES


def _stop(weight: int) -> Frame:
    return Frame(weight, "", "")


_DREAM_ZH = "那天 晚上 ， 它 梦见 了 好多 {food} 。"
_DREAM_EN = "That night it dreams of lots and lots of {food} ."

SCENES: Mapping[str, tuple[Frame, ...]] = {
    "start": (
        Frame(66, "{hero} 爱 吃 {food} 。", "{hero.The} loves to eat {food} .", "middle"),
        Frame(
            16,
            "{home} 住着 {hero.a} ， 它 爱 吃 {food} 。",
            "{hero.A} lives {home} , and it loves to eat {food} .",
            "middle",
        ),
        Frame(
            18,
            "有 {hero.one} {trait} 的 {hero} ， 最 爱 吃 {food} 。",
            "There is {trait.a} {hero} that loves {food} best .",
            "guest",
        ),
    ),
    "middle": (
        Frame(28, "{day} {weather} ， {who} {act} 。", "{day} {weather} , and {who.the} {act} .", "visit"),
        Frame(28, "{who} 带着 {good.a} 去 赶集 。", "{who.The} takes {good.a} to the market .", "trade"),
        Frame(26, "{who} 去 {source} 找 {food} 。", "{who.The} goes {source.to} to look for {food} .", "luck"),
        Frame(18, "{hero} 的 {good} 不见 了 。", "{hero.The} cannot find its {good} .", "found"),
    ),
    "visit": (
        Frame(60, "{friend} 带着 {gift.a} 来 了 。", "{friend.The} comes along with {gift.a} .", "thanks"),
        Frame(40, "{friend} 给 {hero} 送 来 {gift.a} 。", "{friend.The} brings {hero.the} {gift.a} .", "thanks"),
    ),
    "thanks": (
        Frame(45, "{hero} 请 {friend} 吃 {food} 。", "{hero.The} invites {friend.the} to eat {food} .", "two"),
        Frame(
            30,
            "{hero} 把 {food} 分给 {friend} 一半 。",
            "{hero.The} gives {friend.the} half of its {food.thing} .",
            "two",
        ),
        Frame(
            25, "{hero} 说 ： “ 谢谢 你 ， {friend} ！ ”", "{hero.The} says , “ Thank you , dear {friend} ! ”", "two"
        ),
    ),
    "trade": (
        Frame(
            60,
            "{hero} 用 {good} 跟 {seller} 换 了 {food.a} 。",
            "{hero.The} trades {good.the} with {seller.the} for {food.a} .",
            "road",
        ),
        Frame(
            40,
            "{seller} 看中 了 {good.this} ， 给 了 {hero} {food.a} 。",
            "{seller.The} takes a fancy to {good.the} and gives {hero.the} {food.a} .",
            "road",
        ),
    ),
    "road": (
        Frame(50, "回家 路上 ， 它 遇见 了 {friend} 。", "On the way home it meets {friend.the} .", "meet"),
        Frame(
            26,
            "它 边 走 边 吃 ， 到家 时 什么 也 没 剩下 。",
            "It eats as it walks , and nothing is left when it gets home .",
        ),
        Frame(24, _DREAM_ZH, _DREAM_EN),
    ),
    "meet": (
        Frame(
            45,
            "{friend} 饿 了 ， {hero} 把 {food} 分给 它 一半 。",
            "{friend.The} is hungry , so {hero.the} gives it half of the {food.thing} .",
        ),
        Frame(30, "{friend} 说 ： “ 好 香 啊 ！ ”", "{friend.The} says , “ That smells good ! ”"),
        Frame(25, "{friend} 说 ： “ 我 最 爱 吃 {treat} 。 ”", "{friend.The} says , “ I love {treat} best . ”"),
    ),
    "luck": (
        Frame(
            38,
            "{who} 找到 了 {food.a} ， 高兴 得 跳 了 起来 。",
            "{who.The} finds {food.a} and jumps for joy .",
            "one",
        ),
        Frame(
            34,
            "{friend} 也 在 那里 ， 它们 一起 找 {food} 。",
            "{friend.The} is there too , and they look for {food} together .",
            "feast",
        ),
        Frame(28, "可是 那里 什么 也 没有 。", "But there is nothing there .", "comfort"),
    ),
    "one": (
        _stop(30),
        Frame(26, "它 吃 得 很 香 。", "It eats with great delight ."),
        Frame(22, "它 把 最后 一 口 留给 了 {friend} 。", "It saves the last bite for {friend.the} ."),
        Frame(22, _DREAM_ZH, _DREAM_EN),
    ),
    "feast": (
        Frame(55, "它们 在 {source} 吃 得 饱饱 的 。", "They eat their fill {source} .", "two"),
        Frame(
            45, "{hero} 和 {friend} 平分 了 {food} 。", "{hero.The} and {friend.the} share the {food} fairly .", "two"
        ),
    ),
    "comfort": (
        Frame(60, "{friend} 送 给 {hero} {food.a} 。", "{friend.The} gives {hero.the} {food.a} .", "two"),
        Frame(40, "{hero} 叹 了 一 口 气 ， 回家 睡觉 了 。", "{hero.The} sighs and goes home to sleep ."),
    ),
    "found": (
        Frame(70, "{friend} 在 {spot} 找到 了 {good} 。", "{friend.The} finds {good.the} {spot} .", "thanks"),
        Frame(30, "原来 {good} 就 在 {spot} 。", "{good.The} turns out to be {spot} .", "relief"),
    ),
    "relief": (
        _stop(40),
        Frame(35, "{hero} 自己 也 笑 了 。", "{hero.The} has to laugh at itself ."),
        Frame(25, "{hero} 吃 了 {food.a} 压压惊 。", "{hero.The} eats {food.a} to calm down ."),
    ),
    "two": (
        _stop(36),
        Frame(24, "它们 成 了 好 朋友 。", "They become good friends ."),
        Frame(16, "它们 一起 唱歌 ， 唱 到 天黑 。", "They sing together until dark ."),
        Frame(14, "{friend} 说 ： “ 我 最 爱 吃 {treat} 。 ”", "{friend.The} says , “ I love {treat} best . ”"),
        Frame(10, "有 朋友 真 好 。", "It is good to have a friend ."),
    ),
    "guest": (
        Frame(
            100,
            "{friend} 来 做客 ， 也 想 吃 {food} 。",
            "{friend.The} comes to visit and wants some {food} too .",
            "deed",
        ),
    ),
    "deed": (Frame(100, "{hero} {deed} 。", "{hero.The} {deed} .", "outcome"),),
    "outcome": (_stop(20), Frame(80, "{outcome} 。", "{outcome} .")),
}

GRAMMAR = Grammar(ENTRIES, SLOTS, SCENES)
