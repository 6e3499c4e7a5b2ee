"""The devices that work runs on."""
