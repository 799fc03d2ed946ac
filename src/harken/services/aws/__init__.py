"""Amazon Web Services: queues (SQS), topics (SNS) and objects (S3), over their own HTTP interface, without Amazon's packages."""
