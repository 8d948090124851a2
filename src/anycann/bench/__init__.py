"""Speed: workloads of the specs against other libraries and against what the machine's memory can do, all in one run."""
