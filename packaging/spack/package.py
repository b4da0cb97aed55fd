# SPDX-License-Identifier: Apache-2.0
"""Spack recipe of Sluice."""

from spack.package import *


class Sluice(CMakePackage, CudaPackage, ROCmPackage):
    """Persistent one-way channels between processes, driven by streams without the host waiting."""

    license("Apache-2.0")

    version("0.1.0")

    variant("shared", default=False, description="Build shared libraries")
    variant("mpi", default=True, description="Start through MPI, contexts on a communicator")
    variant("ofi", default=True, description="Networks through libfabric, which is loaded when it is needed")
    variant("hwloc", default=True, when="+ofi", description="The nearest network devices first")
    variant("heap", default=True, description="A malloc whose memory peers can map")
    variant("apps", default=True, description="sluice-run, sluice-info, sluice-bench and the applications")
    variant("kokkos", default=True, when="+apps", description="The applications that need Kokkos")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("libfabric@1.17:", when="+ofi")
    depends_on("hwloc@2.1:", when="+hwloc")
    depends_on("jemalloc@5.3:", when="+heap")
    depends_on("pkgconfig", type="build", when="+ofi")
    depends_on("pkgconfig", type="build", when="+heap")
    depends_on("kokkos@4.5:", when="+kokkos")
    depends_on("cli11", when="+apps")
    depends_on("fmt", when="+apps")
    depends_on("nlohmann-json", when="+apps")
    depends_on("libpng", when="+apps")
    depends_on("giflib@5.1:", when="+apps")
    depends_on("fftw@3:~mpi", when="+apps")
    depends_on("pkgconfig", type="build", when="+apps")
    depends_on("googletest", type="test")
    depends_on("python@3:", type="test")

    depends_on("cuda@12:", when="+cuda")
    depends_on("hip", when="+rocm")
    depends_on("llvm-amdgpu", type="build", when="+rocm")

    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def setup_run_environment(self, env):
        # The library looks for libfabric.so.1 in the loader's paths; no file contains its path.
        if self.spec.satisfies("+ofi"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["libfabric"].prefix.lib)

    def cmake_args(self):
        args = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("SLUICE_ENABLE_MPI", "mpi"),
            self.define_from_variant("SLUICE_ENABLE_OFI", "ofi"),
            self.define_from_variant("SLUICE_ENABLE_HWLOC", "hwloc"),
            self.define_from_variant("SLUICE_ENABLE_HEAP", "heap"),
            self.define_from_variant("SLUICE_ENABLE_APPS", "apps"),
            self.define_from_variant("SLUICE_ENABLE_KOKKOS", "kokkos"),
            self.define_from_variant("SLUICE_ENABLE_CUDA", "cuda"),
            self.define_from_variant("SLUICE_ENABLE_HIP", "rocm"),
            self.define("SLUICE_ENABLE_TESTS", self.run_tests and self.spec.satisfies("+apps")),
        ]
        # Code for the named GPUs; the defaults of the build have the usual ones.
        if self.spec.satisfies("+cuda"):
            args.append(self.define("SLUICE_NVCC", self.spec["cuda"].prefix.bin.nvcc))
            if self.spec.variants["cuda_arch"].value[0] != "none":
                args.append(self.define("SLUICE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("SLUICE_HIP_CLANG", join_path(self.spec["llvm-amdgpu"].prefix.bin, "clang++")))
            args.append(self.define("SLUICE_HIP_INCLUDE_DIR", self.spec["hip"].prefix.include))
            if self.spec.variants["amdgpu_target"].value[0] != "none":
                args.append(self.define("SLUICE_HIP_ARCHITECTURES", self.spec.variants["amdgpu_target"].value))
        return args
