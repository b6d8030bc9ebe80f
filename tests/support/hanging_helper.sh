#!/bin/sh
# A helper that reads nothing and says nothing.
exec sleep 20
