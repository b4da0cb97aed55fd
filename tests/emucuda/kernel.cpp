// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/kernel.hpp"

#include <dlfcn.h>

#include <cstdio>

#include "tests/emucuda/driver.hpp"

namespace emucuda {

Kernels& kernels() {
  static Kernels& only = *new Kernels;
  return only;
}

void Kernels::add(const std::string& name, EmucudaKernel run) {
  const std::lock_guard lock(mutex_);
  kernels_[name].run = run;
}

void Kernels::set_parameters(const std::string& name, std::vector<std::size_t> bytes) {
  const std::lock_guard lock(mutex_);
  kernels_[name].parameters = std::move(bytes);
}

std::optional<Kernel> Kernels::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  if (found == kernels_.end() || !found->second.run) return std::nullopt;
  return found->second;
}

bool load_kernels(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
  const auto add = handle ? reinterpret_cast<void (*)()>(::dlsym(handle, "emucuda_kernels")) : nullptr;
  if (!add) {
    std::fprintf(stderr, "emucuda: bad value of EMUCUDA_KERNELS: %s\n", ::dlerror());
    return false;
  }
  add();
  return true;
}

}  // namespace emucuda

extern "C" {

void emucuda_register_kernel(const char* name, EmucudaKernel kernel) { emucuda::kernels().add(name, kernel); }

void emucuda_kernel_parameters(const char* name, std::size_t count, const std::size_t* bytes) {
  emucuda::kernels().set_parameters(name, {bytes, bytes + count});
}

void* emucuda_alias(CUdeviceptr pointer) {
  const auto range = emucuda::driver().addresses.at(pointer);
  return range && range->usable() ? range->alias + (pointer - range->base) : nullptr;
}
}
