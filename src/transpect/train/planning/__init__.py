"""What a recipe will need before it runs: parameters, operations, memory by part, time and cost; and how it scales."""

from transpect.train.planning.choice import Chosen, choose
from transpect.train.planning.hardware import (
    HARDWARE,
    Hardware,
    ThisMachine,
    bytes_named,
    gemm_peak,
    hardware_named,
    this_machine,
)
from transpect.train.planning.parts import Part, Work, parts_of
from transpect.train.planning.peak import Memory, memory_of, state_bytes
from transpect.train.planning.reading import Reading, resident, work_of
from transpect.train.planning.report import Planned, plan
from transpect.train.planning.scaling import Layout, layouts
from transpect.train.planning.seconds import Time, time_of, training_flops

__all__ = [
    "HARDWARE",
    "Chosen",
    "Hardware",
    "Layout",
    "Memory",
    "Part",
    "Planned",
    "Reading",
    "ThisMachine",
    "Time",
    "Work",
    "bytes_named",
    "choose",
    "gemm_peak",
    "hardware_named",
    "layouts",
    "memory_of",
    "parts_of",
    "plan",
    "resident",
    "state_bytes",
    "this_machine",
    "time_of",
    "training_flops",
    "work_of",
]
