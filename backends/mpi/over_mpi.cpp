// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/over_mpi.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/mpi/messages.hpp"

namespace sluice::backends::mpi {
namespace {

constexpr const char* kEnded = "the program has ended MPI (MPI_Finalize) with channels open over it";

/// @throws std::runtime_error for an error that `call` has returned
void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw std::runtime_error(std::string(call) + ": " + text.data());
}

/// A communicator of ours. MPI is called on it with its mutex: so a head and its body leave one behind the other, and
/// the program's MPI_Finalize finds no call of ours under way.
struct Communicator {
  Communicator(MPI_Comm of, bool single) {
    check(MPI_Comm_dup(of, &comm), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    void* most = nullptr;
    int known = 0;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &most, &known);
    if (known != 0) most_tag = *static_cast<int*>(most);
    std::random_device random;
    for (auto& word : name) word = std::uint64_t{random()} << 32 | random();
    if (!single) check(MPI_Bcast(name.data(), sizeof name, MPI_BYTE, 0, comm), "MPI_Bcast");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (!ended) MPI_Comm_free(&comm);
  }

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int most_tag = 32767;  // that of every MPI
  std::array<std::uint64_t, 2> name{};
  std::mutex mutex;
  bool ended = false;  // MPI must not be called any more
  int stations = 0;    // so far
};

/// All that live, for the end of MPI. Never destroyed.
struct Communicators {
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> all;
};
Communicators& communicators() {
  static Communicators& made = *new Communicators;
  return made;
}

extern "C" int sluice_mpi_ends(MPI_Comm, int, void*, void*) {
  const std::lock_guard lock(communicators().mutex);
  for (const auto& one : communicators().all) {
    const auto living = one.lock();
    if (living == nullptr) continue;
    const std::lock_guard calls(living->mutex);
    living->ended = true;
  }
  return MPI_SUCCESS;
}

/// Collective over the ranks of `of`, so not with the mutex: another thread may open another context. MPI_Finalize
/// deletes the attributes of MPI_COMM_SELF before it does anything else (MPI 4.0, 11.2.4).
std::shared_ptr<Communicator> new_communicator(MPI_Comm of, bool single) {
  static const bool once = [] {
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &sluice_mpi_ends, &key, nullptr), "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
    return true;
  }();
  static_cast<void>(once);
  auto made = std::make_shared<Communicator>(of, single);
  const std::lock_guard lock(communicators().mutex);
  std::erase_if(communicators().all, [](const auto& one) { return one.expired(); });
  communicators().all.push_back(made);
  return made;
}

std::shared_ptr<Communicator> own_communicator() {
  static const std::shared_ptr<Communicator>& own =
      *new std::shared_ptr<Communicator>(new_communicator(MPI_COMM_SELF, true));
  return own;
}

thread_local std::shared_ptr<Communicator> t_next;

class MpiMessages final : public Messages {
 public:
  MpiMessages(std::shared_ptr<Communicator> on, int station)
      : Messages({on->name, on->rank, station}), on_(std::move(on)) {}
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;
  ~MpiMessages() override { abandon(arriving_, true); }

  void send(const Address& to, std::span<const std::byte> head, Operation& of_head, std::span<const std::byte> body,
            Operation& of_body) override {
    const Call call(*on_);
    start("MPI_Isend", head, of_head, [&](const std::byte* data, int count, MPI_Request* request) {
      return MPI_Isend(data, count, MPI_BYTE, to.rank, tag_of_heads(to.station), on_->comm, request);
    });
    start("MPI_Isend", body, of_body, [&](const std::byte* data, int count, MPI_Request* request) {
      return MPI_Isend(data, count, MPI_BYTE, to.rank, tag_of_bodies(to.station), on_->comm, request);
    });
  }

  Arrived next() override {
    const Call call(*on_);
    if (arriving_.empty() && !find()) return {};
    if (!test(arriving_)) return {};
    return {std::span(head_).first(head_bytes_), from_};
  }

  void receive(int from, std::span<std::byte> body, Operation& operation) override {
    const Call call(*on_);
    start("MPI_Irecv", body, operation, [&](std::byte* data, int count, MPI_Request* request) {
      return MPI_Irecv(data, count, MPI_BYTE, from, tag_of_bodies(address().station), on_->comm, request);
    });
  }

  bool ended(Operation& operation) override {
    const Call call(*on_);
    return test(operation);
  }

  void abandon(Operation& operation, bool receive) noexcept override {
    const std::lock_guard lock(on_->mutex);
    for (const std::uint64_t word : std::exchange(operation, {})) {
      MPI_Request request = request_of(word);
      if (on_->ended || request == MPI_REQUEST_NULL) continue;
      if (receive) MPI_Cancel(&request);
      int over = 0;
      // A receive whose body is on its way is not cancelled, and ends if its sender lives.
      for (int i = 0; receive && over == 0 && i < kPatience; ++i) {
        if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (MPI_Test(&request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      }
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

 private:
  static constexpr int kPatience = 100;  // milliseconds

  /// The mutex, as long as MPI may be called. @throws std::runtime_error if it may not
  class Call {
   public:
    explicit Call(Communicator& on) : lock_(on.mutex) {
      if (on.ended) throw std::runtime_error(kEnded);
    }

   private:
    std::lock_guard<std::mutex> lock_;
  };

  static int tag_of_heads(int station) noexcept { return 2 * station; }
  static int tag_of_bodies(int station) noexcept { return 2 * station + 1; }

  static MPI_Request request_of(std::uint64_t word) noexcept {
    MPI_Request request = MPI_REQUEST_NULL;
    static_assert(sizeof request <= sizeof word);
    std::memcpy(&request, &word, sizeof request);
    return request;
  }
  static std::uint64_t word_of(MPI_Request request) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, &request, sizeof request);
    return word;
  }

  /// Starts what fits into one message of MPI after the other.
  template <class Bytes, class Start>
  static void start(const char* call, Bytes bytes, Operation& operation, Start start_one) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    static_assert(kMost <= INT_MAX);
    for (std::size_t at = 0; at < bytes.size(); at += kMost) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(start_one(bytes.data() + at, static_cast<int>(std::min(kMost, bytes.size() - at)), &request), call);
      operation.push_back(word_of(request));
    }
  }

  static bool test(Operation& operation) {
    while (!operation.empty()) {
      MPI_Request request = request_of(operation.back());
      int over = 0;
      const int result = MPI_Test(&request, &over, MPI_STATUS_IGNORE);
      operation.back() = word_of(request);  // null, if MPI has freed it, also with an error
      check(result, "MPI_Test");
      if (over == 0) return false;
      operation.pop_back();
    }
    return true;
  }

  /// Returns whether the next head is arriving. No other receive takes it, so no matched probe is needed: Open MPI 4.1
  /// over libfabric fails in MPI_Imrecv.
  bool find() {
    const int tag = tag_of_heads(address().station);
    int there = 0;
    MPI_Status status{};
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag, on_->comm, &there, &status), "MPI_Iprobe");
    if (there == 0) return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    from_ = status.MPI_SOURCE;
    head_bytes_ = static_cast<std::size_t>(std::clamp<int>(bytes, 0, kMostHead));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(head_.data(), kMostHead, MPI_BYTE, from_, tag, on_->comm, &request), "MPI_Irecv");
    arriving_.push_back(word_of(request));
    return true;
  }

  std::shared_ptr<Communicator> on_;
  std::array<std::byte, kMostHead> head_{};
  std::size_t head_bytes_ = 0;
  int from_ = 0;
  Operation arriving_;  // the head
};

std::string why_not() {
  int flag = 0;
  MPI_Initialized(&flag);
  if (flag == 0) return {};  // `run` may initialise it
  MPI_Finalized(&flag);
  if (flag != 0) return "MPI is finalised";
  int level = 0;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) return {};
  return "Sluice's thread calls MPI when the program may: that needs MPI_THREAD_MULTIPLE, asked for with "
         "MPI_Init_thread";
}

std::unique_ptr<Messages> open() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  std::string why = initialised == 0 ? "MPI is not initialised" : why_not();
  if (!why.empty()) throw std::invalid_argument("the backend mpi is not usable here: " + why);
  auto on = std::exchange(t_next, nullptr);
  if (on == nullptr) on = own_communicator();
  const std::lock_guard lock(on->mutex);
  const int station = on->stations;
  if (station >= on->most_tag / 2) throw std::runtime_error("the backend mpi has used all tags of MPI");
  ++on->stations;
  return std::make_unique<MpiMessages>(std::move(on), station);
}

[[maybe_unused]] const bool g_provided = (provide({&why_not, &open}), true);

}  // namespace

ForNextContext::ForNextContext(MPI_Comm communicator, bool wanted) {
  if (!wanted || !why_not().empty()) return;
  t_next = new_communicator(communicator, false);
}

ForNextContext::~ForNextContext() { t_next = nullptr; }

}  // namespace sluice::backends::mpi
