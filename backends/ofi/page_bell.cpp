// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/page_bell.hpp"

#include <thread>

#include "base/log.hpp"
#include "device/kernels.hpp"
#include "device/retire.hpp"

namespace sluice::backends::ofi {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr auto kLook = std::chrono::microseconds(20);

void store_one(void* page) { store(*static_cast<const CounterPage*>(page), 1); }

template <class Launcher>
void write_by_kernel(void* word, std::uint64_t value, Launcher launch) {
  device::WriteArgs one{static_cast<std::uint64_t*>(word), value};
  launch(device::Launch{device::Kernel::write, &one});
}

/// Rings once by `ringer`, in the order of `stream`. A host function alone rings an emulated page, where each store has
/// to wait for the one before.
void ring_once(Ringer ringer, device::Driver& driver, int gpu, void* stream, void* seen_by_gpus, CounterPage& page) {
  if (page.paced && ringer != Ringer::host_function) throw device::GpuError("the page is emulated");
  switch (ringer) {
    case Ringer::stream: {
      const device::WordOp one{device::WordOp::Kind::write, seen_by_gpus, 1};
      return driver.operate(stream, {&one, 1});
    }
    case Ringer::kernel:
      return write_by_kernel(seen_by_gpus, 1, [&](const auto& what) { driver.launch(gpu, stream, what); });
    case Ringer::host_function: return driver.call(stream, store_one, &page);
    case Ringer::engine: return;
  }
}

bool counts(Ringer ringer, device::Driver& driver, const Rail& rail, std::mutex& mutex) {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::unique_lock lock(mutex);
  const auto counter = open_counter(rail);
  auto page = page_of(rail, counter.get());
  if (!page) return false;
  lock.unlock();
  const auto rings = [&] {
    const std::lock_guard one_call(mutex);
    return fi_cntr_read(counter.get());
  };
  void* seen = nullptr;
  const bool by_gpu = ringer != Ringer::host_function;
  try {
    if (by_gpu && !page->paced) seen = driver.reach(page->add, kPageBytes, device::Driver::Pages::registers);
    const int gpu = driver.current_device();
    driver.aside(gpu, [&](void* stream) { ring_once(ringer, driver, gpu, stream, seen, *page); });
    const auto deadline = base::Clock::now() + kPatience;
    while (rings() == 0 && base::Clock::now() < deadline) std::this_thread::sleep_for(kLook);
  } catch (const device::GpuError& reason) {
    base::log(base::LogLevel::info, std::string("not rung by a ") + name(ringer) + ": " + reason.what());
  }
  if (seen != nullptr) driver.give_up(page->add);
  lock.lock();  // until the counter is closed
  return fi_cntr_read(counter.get()) == 1;
}

/// Rung by a store to the NIC: no thread of ours takes part, unless a GPU cannot do without.
class PageBell final : public TickBell {
 public:
  PageBell(Station& station, Owned<fid_cntr> counter, CounterPage page)
      : TickBell(station, std::move(counter)), page_(page) {}
  ~PageBell() override {
    if (seen_by_gpus_ != nullptr) device::retire([driver = driver_, page = page_.add] { driver->give_up(page); });
  }

  void ring_often(device::Lane lane, std::uint64_t times) override {
    if (driver_ != nullptr && ringer_ == Ringer::engine) return TickBell::ring_often(lane, times);
    const std::uint64_t count = rings.load(std::memory_order_relaxed) + times;
    rings.store(count, std::memory_order_relaxed);
    if (lane.gpu == nullptr) return store(page_, times);
    switch (ringer_) {
      case Ringer::stream: lane.gpu->write(seen_by_gpus_, times); break;
      case Ringer::kernel:
        write_by_kernel(seen_by_gpus_, times, [&](const device::Launch& what) { lane.gpu->launch(what); });
        break;
      case Ringer::host_function:
        for (std::uint64_t i = 0; i < times; ++i) lane.gpu->call(store_one, &page_);
        break;
      case Ringer::engine: break;
    }
    lane.gpu->write(word, count);
  }

  /// With the station's mutex, as all of libfabric. The engine rings where no ringer was tried out, because a stream
  /// was parked.
  void reach_from(device::Driver& driver) override {
    TickBell::reach_from(driver);
    if (driver_ != nullptr) return;
    for_kernels_ = nullptr;
    const std::lock_guard lock(station_.mutex);
    const Ringers ringers = station_.ringers.value_or(Ringers{});
    ringer_ = ringers.for_streams;
    if (ringer_ == Ringer::stream || ringer_ == Ringer::kernel)
      seen_by_gpus_ = driver.reach(page_.add, kPageBytes, device::Driver::Pages::registers);
    if (ringers.kernels) for_kernels_ = static_cast<std::uint64_t*>(seen_by_gpus_);
    driver_ = &driver;
  }

  std::uint64_t* counter_for_kernels() const noexcept override { return for_kernels_; }

  /// Streams that still have to ring do it as before: to the page, or by the word.
  void let_kernels_ring() noexcept override {
    const std::uint64_t by_streams = rings.load();
    if (driver_ == nullptr) word.value.store(by_streams);  // all of it is rung
    if (!rung_by_engine()) counted_ = by_streams;
    by_kernels_ = true;
    TickBell::let_kernels_ring();
  }

  std::string rung_for_gpus_by() const override {
    if (by_kernels_) return for_kernels_ == nullptr ? name(Ringer::engine) : "kernel";
    return driver_ == nullptr ? std::string() : name(ringer_);
  }

  bool look() override { return rung_by_engine() && TickBell::look(); }
  /// A GPU writes the word behind each ring of the page, as do kernels of the host.
  std::uint64_t rung() const noexcept override {
    return driver_ == nullptr && !by_kernels_ ? rings.load(std::memory_order_relaxed) : TickBell::rung();
  }
  bool awaited() const noexcept override { return rung_by_engine() && TickBell::awaited(); }

 private:
  /// Streams and kernels only write the word, and the engine rings the page.
  bool rung_by_engine() const noexcept {
    return by_kernels_ ? for_kernels_ == nullptr : driver_ != nullptr && ringer_ == Ringer::engine;
  }

  CounterPage page_;
  Ringer ringer_ = Ringer::engine;
  device::Driver* driver_ = nullptr;
  void* seen_by_gpus_ = nullptr;
  // The address at which kernels ring, as the host sees it until GPUs reach it. Null: the engine rings for them, as on
  // an emulated page, where two stores in a row are one: a kernel cannot wait.
  std::uint64_t* for_kernels_ = page_.paced ? nullptr : reinterpret_cast<std::uint64_t*>(page_.add);
  bool by_kernels_ = false;  // kernels ring, and nothing else does
};

}  // namespace

const char* name(Ringer ringer) noexcept {
  constexpr const char* kNames[] = {"stream", "kernel of one thread", "host function", "engine"};
  return kNames[static_cast<int>(ringer)];
}

Ringers choose_ringers(device::Driver& driver, const Rail& rail, std::mutex& mutex) {
  const auto works = [&](Ringer ringer) { return counts(ringer, driver, rail, mutex); };
  if (works(Ringer::stream)) return {Ringer::stream, works(Ringer::kernel)};
  if (works(Ringer::kernel)) return {Ringer::kernel, true};
  return {works(Ringer::host_function) ? Ringer::host_function : Ringer::engine, false};
}

std::shared_ptr<TickBell> make_bell(Station& station, const Rail& rail) {
  auto counter = open_counter(rail);
  const auto page = station.rings_by_page ? page_of(rail, counter.get()) : std::nullopt;
  if (page) return std::make_shared<PageBell>(station, std::move(counter), *page);
  return std::make_shared<TickBell>(station, std::move(counter));
}

}  // namespace sluice::backends::ofi
