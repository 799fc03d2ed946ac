"""What services that read mailboxes share: texts, senders, what is extracted, and what a job may ask."""

from harken.kit.mail.message import MailMessage, Part, mail_fields
from harken.kit.mail.query import FIELDS, MailQuery, condition, delivery

__all__ = ["FIELDS", "MailMessage", "MailQuery", "Part", "condition", "delivery", "mail_fields"]
