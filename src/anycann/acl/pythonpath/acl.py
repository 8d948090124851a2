"""`import acl` in scripts that `anycann run` starts, and after set_env.sh: anycann's pyACL under the name that scripts know."""

import sys

import anycann.acl

sys.modules[__name__] = anycann.acl
