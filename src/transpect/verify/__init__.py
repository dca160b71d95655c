"""Does every fast way give what the slow and obvious one gives: measured on a person's own model and machine."""

from transpect.verify.certificate import Certificate, Row, Verdict, certificate_place, check_place, write_certificate
from transpect.verify.run import verify

__all__ = ["Certificate", "Row", "Verdict", "certificate_place", "check_place", "verify", "write_certificate"]
