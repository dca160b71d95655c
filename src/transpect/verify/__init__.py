"""Does every fast way give what the slow and obvious one gives: measured on a person's own model and machine."""

from transpect.verify.certificate import Certificate, Row, Verdict
from transpect.verify.run import verify

__all__ = ["Certificate", "Row", "Verdict", "verify"]
