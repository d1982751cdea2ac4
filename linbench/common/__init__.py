"""What lies under every room: errors a user can cause, validated settings, the shape of inputs and
outputs."""
