"""What every room stands on: errors, the configuration codec, devices, messages in two languages."""
