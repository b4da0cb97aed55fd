// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/kernel.hpp"

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

}  // namespace emucuda

extern "C" {

void emucuda_register_kernel(const char* name, EmucudaKernel kernel) { emucuda::kernels().add(name, kernel); }

void emucuda_kernel_parameters(const char* name, std::size_t count, const std::size_t* bytes) {
  emucuda::kernels().set_parameters(name, {bytes, bytes + count});
}

void* emucuda_alias(CUdeviceptr pointer) {
  const auto range = emucuda::driver().addresses.at(pointer);
  return range && range->live ? range->alias + (pointer - range->base) : nullptr;
}
}
