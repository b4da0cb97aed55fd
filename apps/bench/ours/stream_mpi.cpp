// SPDX-License-Identifier: Apache-2.0
// MPI Advance's functions. This program is not linked with libsluice_mpis, which would make a second context in every
// other bench that runs under MPI: where the library stands before MPI, its functions are found by name.
#include "apps/bench/ours/stream_mpi.hpp"

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/host_queue.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <sluice/dialects/mpis.h>

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {
namespace {

/// The library, if it is in this process; else null.
void* mpis_library() {
  Dl_info place{};
  void* const address = ::dlsym(RTLD_DEFAULT, "MPIS_Queue_init");
  if (address == nullptr || ::dladdr(address, &place) == 0) return nullptr;
  if (std::string_view(place.dli_fname).find("libsluice_mpis") == std::string_view::npos) return nullptr;
  return ::dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/// A function of the library, as a pointer to any type of function.
struct FoundMpis {
  void* address;
  template <class Function>
  operator Function*() const {  // NOLINT(google-explicit-constructor)
    return reinterpret_cast<Function*>(address);
  }
};

FoundMpis find_mpis(const char* name) {
  void* const found = ::dlsym(mpis_library(), name);
  if (found == nullptr) throw std::runtime_error(std::string("libsluice_mpis has no ") + name);
  return {found};
}

struct MpisCalls {
  decltype(&sluice_host_stream_create) stream_create = find_mpis("sluice_host_stream_create");
  decltype(&sluice_host_stream_run) stream_run = find_mpis("sluice_host_stream_run");
  decltype(&sluice_host_stream_free) stream_free = find_mpis("sluice_host_stream_free");
  decltype(&MPIS_Queue_init) queue_init = find_mpis("MPIS_Queue_init");
  decltype(&MPIS_Queue_wait) queue_wait = find_mpis("MPIS_Queue_wait");
  decltype(&MPIS_Queue_free) queue_free = find_mpis("MPIS_Queue_free");
  decltype(&MPIS_Alloc_mem) alloc = find_mpis("MPIS_Alloc_mem");
  decltype(&MPIS_Free_mem) free = find_mpis("MPIS_Free_mem");
  decltype(&MPIS_Send_init) send_init = find_mpis("MPIS_Send_init");
  decltype(&MPIS_Recv_init) recv_init = find_mpis("MPIS_Recv_init");
  decltype(&MPIS_Matchall) match_all = find_mpis("MPIS_Matchall");
  decltype(&MPIS_Enqueue_startall) start_all = find_mpis("MPIS_Enqueue_startall");
  decltype(&MPIS_Enqueue_waitall) wait_all = find_mpis("MPIS_Enqueue_waitall");
  decltype(&MPIS_Request_freeall) free_all = find_mpis("MPIS_Request_freeall");
};

const MpisCalls& mpis() {
  static const MpisCalls calls;
  return calls;
}

void check_mpis(int code, const char* what) {
  if (code != MPIS_SUCCESS) throw std::runtime_error(fmt::format("stream_mpi: {} has failed with {}", what, code));
}

class MpisStream {
 public:
  MpisStream() { check_mpis(mpis().stream_create(nullptr, &stream_), "the making of a host stream"); }
  ~MpisStream() { mpis().stream_free(&stream_); }
  MpisStream(const MpisStream&) = delete;
  MpisStream& operator=(const MpisStream&) = delete;

  void run(std::function<void()> work) {
    auto held = std::make_unique<std::function<void()>>(std::move(work));
    check_mpis(mpis().stream_run(stream_, &call, held.get()), "enqueueing a callable");
    (void)held.release();
  }
  void* variable() { return static_cast<void*>(&stream_); }

 private:
  static int call(void* held) {
    const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(held));
    (*work)();
    return 0;
  }

  sluice_host_stream* stream_ = nullptr;
};

/// Queue of MPI Advance's on such a stream, with the gate and the time stamps of the other benches. For
/// Drive::stepwise, which needs neither, the queue has a stream of its own.
class MpisQueue final : public Queue {
 public:
  MpisQueue(Drive drive, long items_per_step)
      : Queue(kItemsOfStream, items_per_step, HostQueue::kMaxSteps,
              [this](sluice::Stream /*none*/) { check_mpis(mpis().queue_wait(queue_), "MPIS_Queue_wait"); }) {
    if (drive != Drive::stepwise) stream_.emplace();
    check_mpis(mpis().queue_init(&queue_, THREAD, stream_ ? stream_->variable() : nullptr), "MPIS_Queue_init");
  }
  ~MpisQueue() override { mpis().queue_free(&queue_); }
  MpisQueue(const MpisQueue&) = delete;
  MpisQueue& operator=(const MpisQueue&) = delete;

  MPIS_Queue get() const { return queue_; }
  void wait_all() const { check_mpis(mpis().wait_all(queue_), "MPIS_Enqueue_waitall"); }

  sluice::Stream stream() override { return {}; }  // it is of another copy of the library
  void run(std::function<void()> work) override { stream_.value().run(std::move(work)); }

 private:
  static constexpr long kItemsOfStream = 65536;  // the default capacity of a host stream

  void begin() override {
    run([this] { began_ = now_ns(); });
  }
  void end() override {
    run([this] { ended_ = now_ns(); });
  }
  double between_ns() override { return ended_ - began_; }
  void capture(const std::function<void()>& /*work*/) override {
    throw std::logic_error("a host stream has no graphs");
  }
  void launch_graph() override {}

  double began_ = 0;
  double ended_ = 0;
  std::optional<MpisStream> stream_;
  MPIS_Queue queue_ = 0;
};

/// Memory of a message, which --memory chooses.
class MpisBuffer {
 public:
  explicit MpisBuffer(const Workload& workload) {
    if (workload.options.memory == MemoryChoice::user) {
      user_ = std::make_unique<Pages>(workload.bytes);
      data_ = user_->data();
      return;
    }
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_memory_alloc_kinds", "system");
    void* memory = nullptr;
    const int code = mpis().alloc(static_cast<MPI_Aint>(std::max<std::size_t>(workload.bytes, 1)), info, &memory);
    MPI_Info_free(&info);
    check_mpis(code, "MPIS_Alloc_mem");
    data_ = static_cast<std::byte*>(memory);
  }
  ~MpisBuffer() {
    if (!user_) mpis().free(data_);
  }
  MpisBuffer(const MpisBuffer&) = delete;
  MpisBuffer& operator=(const MpisBuffer&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::unique_ptr<Pages> user_;
  std::byte* data_ = nullptr;
};

/// A message out and one in, with the same tag.
struct MpisMessages {
  MpisMessages(const Workload& workload, const Neighbour& neighbour) : ranks(neighbour), out(workload), in(workload) {}
  Neighbour ranks;
  MpisBuffer out;
  MpisBuffer in;
};

std::byte mpis_stamp(sluice::Rank from, int tag, std::size_t i) {
  return static_cast<std::byte>(1 + (static_cast<std::size_t>(7 * from + 3 * tag) + i) % 251);
}

class ByMpis : public Contender {
 public:
  /// `neighbours`: whom each message goes to and comes from.
  ByMpis(const Workload& workload, const std::vector<Neighbour>& neighbours, long items_per_step)
      : workload_(workload), queue_(workload.drive, items_per_step) {
    for (const Neighbour& ranks : neighbours)
      add(*messages_.emplace_back(std::make_unique<MpisMessages>(workload, ranks)));
    check_mpis(mpis().match_all(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
               "MPIS_Matchall");
  }
  ~ByMpis() override { mpis().free_all(static_cast<int>(requests_.size()), requests_.data()); }
  ByMpis(const ByMpis&) = delete;
  ByMpis& operator=(const ByMpis&) = delete;

  double run(long count) override {
    return queue_.drive(workload_.drive, count, [this] { step(); });
  }

  /// Moves stamped messages by one step, and checks them.
  void move_stamped() {
    for (std::size_t tag = 0; tag < messages_.size(); ++tag) {
      const MpisMessages& message = *messages_[tag];
      for (std::size_t i = 0; i < workload_.bytes; ++i) {
        message.out.data()[i] = mpis_stamp(workload_.context.rank(), static_cast<int>(tag), i);
        message.in.data()[i] = {};
      }
    }
    step();
    queue_.synchronize();
    for (std::size_t tag = 0; tag < messages_.size(); ++tag) {
      const MpisMessages& message = *messages_[tag];
      for (std::size_t i = 0; i < workload_.bytes; ++i)
        if (message.in.data()[i] != mpis_stamp(message.ranks.from, static_cast<int>(tag), i))
          throw std::runtime_error(fmt::format("stream_mpi: byte {} of a message is wrong", i));
    }
  }

 protected:
  virtual void step() = 0;

  void start(std::size_t first, std::size_t count) {
    check_mpis(mpis().start_all(queue_.get(), static_cast<int>(count), requests_.data() + first),
               "MPIS_Enqueue_startall");
  }
  void start_all() { start(0, requests_.size()); }
  void wait_all() { queue_.wait_all(); }

  const Workload workload_;

 private:
  // The receive first, and then the send.
  void add(const MpisMessages& message) {
    const int tag = static_cast<int>(messages_.size()) - 1;
    const auto count = static_cast<MPI_Count>(workload_.bytes);
    const MPI_Comm comm = world_.communicator();
    check_mpis(mpis().recv_init(message.in.data(), count, MPI_BYTE, message.ranks.from, tag, comm, MPI_INFO_NULL,
                                &requests_.emplace_back()),
               "MPIS_Recv_init");
    check_mpis(mpis().send_init(message.out.data(), count, MPI_BYTE, message.ranks.to, tag, comm, MPI_INFO_NULL,
                                &requests_.emplace_back()),
               "MPIS_Send_init");
  }

  apps::MpiWorld world_;
  MpisQueue queue_;
  std::vector<std::unique_ptr<MpisMessages>> messages_;
  std::vector<MPIS_Request> requests_;
};

constexpr long kItemsOfMpisStep = 4;  // at most: start, wait, start, wait

class MpisPingPong final : public ByMpis {
 public:
  explicit MpisPingPong(const Workload& workload)
      : ByMpis(workload, {{workload.peer, workload.peer}}, kItemsOfMpisStep) {
    move_stamped();
  }

 private:
  void step() override {
    if (workload_.first) {
      start_all();
      wait_all();
      return;
    }
    start(kIn, 1);
    wait_all();
    start(kOut, 1);
    wait_all();
  }

  static constexpr std::size_t kIn = 0;
  static constexpr std::size_t kOut = 1;
};

std::vector<Neighbour> all_neighbours(const Workload& workload) {
  std::vector<Neighbour> all;
  for (int k = 0; k < workload.neighbours; ++k) all.push_back(neighbour(workload.context, k));
  return all;
}

class MpisHalo final : public ByMpis {
 public:
  explicit MpisHalo(const Workload& workload) : ByMpis(workload, all_neighbours(workload), kItemsOfMpisStep) {
    move_stamped();
  }

 private:
  void step() override {
    start_all();
    wait_all();
  }
};

}  // namespace

std::string why_no_stream_mpi() {
  if (under_mpi() && mpis_library() != nullptr) return {};
  return "stream_mpi needs libsluice_mpis before MPI: mpiexec -n 2 env LD_PRELOAD=.../libsluice_mpis.so ...";
}

std::unique_ptr<Contender> make_mpis_ping_pong(const Workload& workload) {
  return std::make_unique<MpisPingPong>(workload);
}

std::unique_ptr<Contender> make_mpis_halo(const Workload& workload) { return std::make_unique<MpisHalo>(workload); }

}  // namespace bench
