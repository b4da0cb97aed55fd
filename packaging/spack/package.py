# SPDX-License-Identifier: Apache-2.0
"""Spack recipe of Sluice."""

from spack.package import *


class Sluice(CMakePackage):
    """Persistent one-way channels between processes, driven by streams without the host waiting."""

    license("Apache-2.0")

    version("0.1.0")

    variant("shared", default=False, description="Build shared libraries")
    variant("mpi", default=True, description="Start through MPI, contexts on a communicator")
    variant("ofi", default=True, description="Networks through libfabric, which is loaded when it is needed")
    variant("hwloc", default=True, when="+ofi", description="The nearest network devices first")
    variant("apps", default=True, description="sluice-run, sluice-info, sluice-bench and the applications")
    variant("kokkos", default=True, when="+apps", description="The applications that need Kokkos")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("libfabric@1.17:", when="+ofi")
    depends_on("hwloc@2.1:", when="+hwloc")
    depends_on("pkgconfig", type="build", when="+ofi")
    depends_on("kokkos@4.5:", when="+kokkos")
    depends_on("cli11", when="+apps")
    depends_on("fmt", when="+apps")
    depends_on("nlohmann-json", when="+apps")
    depends_on("libpng", when="+apps")
    depends_on("googletest", type="test")
    depends_on("python@3:", type="test")

    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def setup_run_environment(self, env):
        # The library looks for libfabric.so.1 where the loader does; nothing has its path.
        if self.spec.satisfies("+ofi"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["libfabric"].prefix.lib)

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("SLUICE_ENABLE_MPI", "mpi"),
            self.define_from_variant("SLUICE_ENABLE_OFI", "ofi"),
            self.define_from_variant("SLUICE_ENABLE_HWLOC", "hwloc"),
            self.define_from_variant("SLUICE_ENABLE_APPS", "apps"),
            self.define_from_variant("SLUICE_ENABLE_KOKKOS", "kokkos"),
            self.define("SLUICE_ENABLE_TESTS", self.run_tests and self.spec.satisfies("+apps")),
        ]
