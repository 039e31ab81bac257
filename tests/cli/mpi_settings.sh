# Sourced where mpirun is used: as root, and with more ranks than cores, in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
# MPI's own leaks are not ours.
export ASAN_OPTIONS=detect_leaks=0
# Ranks may have a terminal of mpirun's, whatever the test's output is.
export TERM=dumb
