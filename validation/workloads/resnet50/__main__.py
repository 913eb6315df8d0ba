"""`python -m validation.workloads.resnet50`: see `run`."""

import sys

from validation.workloads.resnet50.run import main

sys.exit(main())
