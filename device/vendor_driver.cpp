// SPDX-License-Identifier: Apache-2.0
#include "device/vendor_driver.hpp"

namespace sluice::device {

class VendorDriver::Aside {
 public:
  Aside(VendorDriver& driver, int device)
      : driver_(driver), resources_(driver.resources_.at(static_cast<std::size_t>(device))), apart_(driver, device) {
    {
      const std::lock_guard lock(driver.mutex_);
      if (!resources_.idle.empty()) {
        stream = resources_.idle.back();
        resources_.idle.pop_back();
      }
    }
    // No other would do: the legacy stream of the program waits for that of a thread.
    if (stream == nullptr) stream = driver.new_stream();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  ~Aside() {
    const std::lock_guard lock(driver_.mutex_);
    resources_.idle.push_back(stream);
  }

 private:
  VendorDriver& driver_;
  Resources& resources_;
  Apart apart_;

 public:
  void* stream = nullptr;
};

void VendorDriver::aside(int device, const std::function<void(void*)>& work) {
  const Aside aside(*this, device);
  work(aside.stream);
  synchronize(aside.stream);
}

Stream VendorDriver::own_stream(int device) {
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  std::atomic<void*>& own = resources_.at(static_cast<std::size_t>(device)).own;
  if (own == nullptr) own = new_stream();
  return public_stream(own);
}

bool VendorDriver::lost(int device) noexcept {
  void* const own = resources_[static_cast<std::size_t>(device)].own;
  return own != nullptr && has_failed(device, own);
}

void VendorDriver::copy_now(void* to, const void* from, std::size_t bytes) {
  auto memory = find(to);
  if (!memory) memory = find(from);
  aside(memory ? memory->device : 0, [&](void* stream) { copy(stream, to, from, bytes); });
}

void VendorDriver::zero(const GpuMemory& memory) {
  aside(memory.device, [&](void* stream) { zero(stream, memory); });
}

const VendorDriver::Functions& VendorDriver::functions(int device) {
  Resources& gpu = resources_.at(static_cast<std::size_t>(device));
  if (gpu.loaded.load(std::memory_order_acquire)) return gpu.functions;
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  if (gpu.loaded) return gpu.functions;
  if (gpu.module == nullptr) gpu.module = load_module();
  for (std::size_t i = 0; i < gpu.functions.size(); ++i) gpu.functions[i] = find_function(gpu.module, kKernelNames[i]);
  gpu.loaded.store(true, std::memory_order_release);
  return gpu.functions;
}

}  // namespace sluice::device
