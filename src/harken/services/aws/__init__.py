"""Amazon Web Services: queues (SQS) and topics (SNS), over their own HTTP interface, without Amazon's packages."""
