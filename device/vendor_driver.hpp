// SPDX-License-Identifier: Apache-2.0
// The part of a driver that is alike for all vendors: streams of ours, kernels, and calls outside of any capture.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/driver.hpp"

namespace sluice::device {

class VendorDriver : public Driver {
 public:
  const std::string& why_not() const noexcept final { return why_not_; }
  int devices() const noexcept final { return static_cast<int>(resources_.size()); }
  void launch(int device, void* stream, const Launch& what) final {
    launch(functions(device)[static_cast<std::size_t>(what.kernel)], stream, what);
  }
  void load_kernels(int device) final { functions(device); }
  bool has_kernels(int device) const noexcept final { return resources_[static_cast<std::size_t>(device)].loaded; }
  void aside(int device, const std::function<void(void* stream)>& work) final;
  Stream own_stream(int device) final;
  bool lost(int device) noexcept final;
  void copy_now(void* to, const void* from, std::size_t bytes) final;
  void zero(const GpuMemory& memory) final;

 protected:
  /// While it lives, a GPU is current, and calls that a capture forbids do not end one: they are not part of it.
  class Apart {
   public:
    Apart(VendorDriver& driver, int device)
        : driver_(driver), mode_(driver.exchange_capture_mode(kRelaxed)), current_(driver, device) {}
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart() { driver_.exchange_capture_mode(mode_); }

   private:
    VendorDriver& driver_;
    int mode_;
    OnDevice current_;
  };
  static constexpr int kRelaxed = 2;     // what vendors call their relaxed mode of capture
  static constexpr int kHighest = -100;  // priority: what is beyond the range is taken for its end

  /// Called once for each GPU.
  void add_device() { resources_.emplace_back(); }
  /// Why no GPU can be used; empty: one can. Called by constructors.
  void set_why_not(std::string why) { why_not_ = std::move(why); }
  /// Runs `work` with the GPU current, and logs a failure. Any thread, also one that uses no GPU.
  template <class F>
  void on_device(int device, F work) noexcept {
    try {
      const Apart apart(*this, device);
      work();
    } catch (const GpuError& reason) {
      base::log(base::LogLevel::warn, reason.what());
    }
  }

 private:
  using Functions = std::array<void*, kKernelNames.size()>;
  /// The streams and kernels of one GPU.
  struct Resources {
    std::vector<void*> idle;          // streams of ours, for work that no stream of the user orders
    std::atomic<void*> own{nullptr};  // one more, for work that nothing waits for
    void* module = nullptr;
    Functions functions{};
    std::atomic<bool> loaded{false};
  };
  /// A stream of ours.
  class Aside;

  /// Sets the mode of the calling thread. Returns the mode before.
  virtual int exchange_capture_mode(int mode) noexcept = 0;
  /// Returns a non-blocking stream, which the legacy stream of the program does not wait for, nor the other way round.
  /// Its priority is the highest: if such streams have hardware queues of their own, it is behind no stream that waits.
  virtual void* new_stream() = 0;
  virtual Stream public_stream(void* stream) const noexcept = 0;
  /// Asked of a stream of the GPU, which need not be current.
  virtual bool has_failed(int device, void* stream) noexcept = 0;
  virtual void* load_module() = 0;
  virtual void* find_function(void* module, const char* name) = 0;
  virtual void launch(void* function, void* stream, const Launch& what) = 0;
  virtual void zero(void* stream, const GpuMemory& memory) = 0;

  const Functions& functions(int device);

  std::deque<Resources> resources_;
  std::mutex mutex_;  // of the resources
  std::string why_not_;
};

}  // namespace sluice::device
