"""Work shared among workers: this process, processes of this machine, Dask's workers anywhere.

- `job`: what work is, and this process as the only worker.
- `processes`: those of this machine.
- `place`: what a worker is, what it runs kernels on, and in what it differs from another.
- `connect`, `members`, `cluster`: Dask's scheduler, its workers, and how they share a job.
- `remote`: what runs in a worker of Dask.
"""
