// SPDX-License-Identifier: Apache-2.0
// The part of a driver that is alike for all vendors: streams of ours, kernels, and calls outside of any capture.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "device/driver.hpp"

namespace sluice::device {

/// A name of a vendor's library, and its address once the library is loaded.
struct Symbol {
  const char* name;
  void* address = nullptr;
};
using Symbols = std::vector<Symbol*>;

/// A function of a vendor's library, which adds itself to the library's names.
template <class Signature>
struct Call;
template <class Result, class... Parameters>
struct Call<Result(Parameters...)> : Symbol {
  Call(Symbols& all, const char* name_of_it) : Symbol{name_of_it} { all.push_back(this); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Result operator()(Parameters... arguments) const {
    return reinterpret_cast<Result (*)(Parameters...)>(address)(arguments...);
  }
};

/// `Calls` has the vendor's functions, by the part of their names that vendors share, and the vendor's types
/// (cuda_streams.hpp, hip.cpp).
template <class Calls>
class VendorDriver : public Driver {
 public:
  Stream::Kind kind() const noexcept final { return Calls::kKind; }
  const char* name() const noexcept final { return Calls::kName; }
  const std::string& why_not() const noexcept final { return why_not_; }
  int devices() const noexcept final { return static_cast<int>(resources_.size()); }
  GpuId id_of(int device) const final { return resources_.at(static_cast<std::size_t>(device)).id; }

  void call(void* stream, void (*function)(void*), void* argument) override {
    require(calls_.LaunchHostFunc, handle(stream), function, argument);
  }
  void synchronize(void* stream) final { require(calls_.StreamSynchronize, handle(stream)); }

  void launch(int device, void* stream, const Launch& what) final {
    void* parameters[] = {what.args};
    require(calls_.LaunchKernel, functions(device)[static_cast<std::size_t>(what.kernel)], what.blocks, what.rows, 1,
            what.threads, 1, 1, 0, handle(stream), parameters, nullptr);
  }
  void load_kernels(int device) final { functions(device); }
  bool has_kernels(int device) const noexcept final { return resources_[static_cast<std::size_t>(device)].loaded; }

  void aside(int device, const std::function<void(void* stream)>& work) final {
    const Apart apart(*this, device);
    const auto stream = take_stream(device);
    work(stream.get());
    synchronize(stream.get());
  }

  Stream own_stream(int device) final {
    const Apart apart(*this, device);
    const std::lock_guard lock(mutex_);
    std::atomic<void*>& own = gpu(device).own;
    if (own == nullptr) own = new_stream();
    return Calls::kStream(handle(own));
  }

  bool lost(int device) noexcept final {
    void* const own = resources_[static_cast<std::size_t>(device)].own;
    return own != nullptr && has_failed(device, own);
  }

  void copy_now(void* to, const void* from, std::size_t bytes) final {
    auto memory = find(to);
    if (!memory) memory = find(from);
    aside(memory ? memory->device : 0, [&](void* stream) { copy(stream, to, from, bytes); });
  }

  void zero(const GpuMemory& memory) final {
    aside(memory.device,
          [&](void* stream) { require(calls_.MemsetAsync, address(memory.data), 0, memory.bytes, handle(stream)); });
  }

 protected:
  using Result = typename Calls::Result;

  /// While it lives, a GPU is current, and calls of this thread that a capture would forbid end no capture, of whatever
  /// thread: they are not part of it.
  class Apart {
   public:
    Apart(VendorDriver& driver, int device)
        : driver_(driver), mode_(driver.exchange_capture_mode(Calls::kRelaxed)), current_(driver, device) {}
    ~Apart() { driver_.exchange_capture_mode(mode_); }

   private:
    VendorDriver& driver_;
    typename Calls::CaptureMode mode_;
    OnDevice current_;
  };

  static auto handle(void* stream) noexcept { return static_cast<typename Calls::StreamHandle>(stream); }

  static auto address(const void* pointer) noexcept { return Calls::address(pointer); }

  /// @throws GpuError unless `result` of the function is success
  void check(Result result, const char* function) const {
    if (result != Calls::kSuccess) throw GpuError(std::string(function) + ": " + calls_.text_of(result));
  }
  /// Calls a function. @throws GpuError if it fails
  template <class... Parameters>
  void require(const Call<Result(Parameters...)>& call, std::type_identity_t<Parameters>... arguments) const {
    check(call(arguments...), call.name);
  }

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

  /// Called by constructors, once for each GPU.
  template <class VendorUuid>
  void add_device(const VendorUuid& uuid) {
    resources_.emplace_back().id = std::bit_cast<GpuId>(uuid);
  }
  /// Returns the number of a GPU here, unless it is hidden from this process.
  std::optional<int> find_device(const GpuId& id) const {
    const auto gpu = std::ranges::find(resources_, id, &Resources::id);
    return gpu == resources_.end() ? std::nullopt : std::optional(static_cast<int>(gpu - resources_.begin()));
  }

  template <class Device>
  base::Facts facts_of(int number, Device device, base::Fact word_operations, base::Fact flushes_remote_writes,
                       base::Fact shared_by_descriptor, base::Fact dma_buf) const {
    char model[128] = {};
    char bus[32] = {};
    std::size_t bytes = 0;
    int version = 0;
    require(calls_.DeviceGetName, model, sizeof model, device);
    require(calls_.DeviceGetPCIBusId, bus, sizeof bus, device);
    require(calls_.DeviceTotalMem, &bytes, device);
    require(calls_.DriverGetVersion, &version);
    return {{"vendor", std::string(name())},
            {"device", static_cast<std::uint64_t>(number)},
            {"model", std::string(model)},
            {"bus", std::string(bus)},
            {"memory_bytes", static_cast<std::uint64_t>(bytes)},
            {"driver", Calls::version_text(version)},
            {"word_operations", std::move(word_operations)},
            {"waits", std::string(words_by_kernels() ? "kernel" : "stream")},
            {"flushes_remote_writes", std::move(flushes_remote_writes)},
            {"shared_by_descriptor", std::move(shared_by_descriptor)},
            {"dma_buf", std::move(dma_buf)}};
  }

  /// True if work of the stream can no longer run. The GPU need not be current.
  virtual bool has_failed(int, void* stream) noexcept {
    const auto mode = exchange_capture_mode(Calls::kRelaxed);
    const Result result = calls_.StreamQuery(handle(stream));
    exchange_capture_mode(mode);
    return is_failure(result);
  }
  static bool is_failure(Result result) noexcept {
    return result != Calls::kSuccess && result != Calls::kNotReady && result != Calls::kOutOfMemory;
  }

  Calls calls_;
  std::string why_not_ = calls_.load();  // if empty, constructors look for GPUs

 private:
  using Functions = std::array<typename Calls::Function, kKernelNames.size()>;
  /// The streams and kernels of one GPU.
  struct Resources {
    GpuId id{};
    std::vector<void*> idle;          // streams of ours, for work that no stream of the user orders
    std::atomic<void*> own{nullptr};  // one more, for work that nothing waits for
    typename Calls::Module module = nullptr;
    Functions functions{};
    std::atomic<bool> loaded{false};
  };

  struct GiveBack {
    VendorDriver& driver;
    std::vector<void*>& idle;

    void operator()(void* stream) const {
      const std::lock_guard lock(driver.mutex_);
      idle.push_back(stream);
    }
  };

  /// Takes an idle stream of ours, with the GPU current. No other stream would do: the legacy stream of the program
  /// waits for a thread's.
  std::unique_ptr<void, GiveBack> take_stream(int device) {
    std::vector<void*>& idle = gpu(device).idle;
    {
      const std::lock_guard lock(mutex_);
      if (!idle.empty()) {
        void* const stream = idle.back();
        idle.pop_back();
        return {stream, {*this, idle}};
      }
    }
    return {new_stream(), {*this, idle}};
  }

  Resources& gpu(int device) { return resources_.at(static_cast<std::size_t>(device)); }

  /// Sets the mode of the calling thread. Returns the mode before.
  auto exchange_capture_mode(typename Calls::CaptureMode mode) noexcept {
    static_cast<void>(calls_.ThreadExchangeStreamCaptureMode(&mode));
    return mode;
  }

  /// Returns a non-blocking stream, which the legacy stream of the program does not wait for, nor the other way round.
  /// Its priority is the highest: if such streams have hardware queues of their own, it is behind no stream that waits.
  void* new_stream() {
    constexpr int kHighest = -100;  // drivers take the end of their range for numbers beyond it
    typename Calls::StreamHandle stream = nullptr;
    require(calls_.StreamCreateWithPriority, &stream, Calls::kNonBlocking, kHighest);
    return stream;
  }

  const Functions& functions(int device) {
    Resources& own = gpu(device);
    if (own.loaded.load(std::memory_order_acquire)) return own.functions;
    const Apart apart(*this, device);
    const std::lock_guard lock(mutex_);
    if (own.loaded) return own.functions;
    if (own.module == nullptr) require(calls_.ModuleLoadData, &own.module, Calls::kKernels().data());
    for (std::size_t i = 0; i < own.functions.size(); ++i)
      require(calls_.ModuleGetFunction, &own.functions[i], own.module, kKernelNames[i]);
    own.loaded.store(true, std::memory_order_release);
    return own.functions;
  }

  std::deque<Resources> resources_;
  std::mutex mutex_;  // of the resources
};

// The drivers that this build has, and the libraries that they load.
inline constexpr const char* kCudaLibrary = "libcuda.so.1";
Driver& cuda_driver();
extern const char* const kHipLibrary;
Driver& hip_driver();

}  // namespace sluice::device
