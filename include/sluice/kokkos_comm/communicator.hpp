// SPDX-License-Identifier: Apache-2.0
// KokkosComm's interface of today: a Communicator, Requests that are moved, exchange and Channel.
#pragma once

#include <sluice/kokkos/mpi_contexts.hpp>
#include <sluice/kokkos_comm/messages.hpp>

#include <mpi.h>
#include <KokkosComm/KokkosComm.hpp>
#include <Kokkos_Core.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

namespace sluice::kokkos_comm {

/// The messages that a Request refers to.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Makes progress. Returns true if `wait` would now return, or throw, without blocking.
  virtual bool test() = 0;
  virtual void wait() = 0;
  virtual Context& context() = 0;
};

/// The communication space: KokkosComm's templates take it in place of KokkosComm::MpiSpace.
struct CommSpace {
  using communication_space = CommSpace;
  using communicator_type = MPI_Comm;
  using request_type = std::shared_ptr<Pending>;
  using datatype_type = MPI_Datatype;
  using reduction_op_type = MPI_Op;
  using size_type = int;
  using rank_type = int;
};

namespace detail {

/// The messages of a communicator, by the kind of execution space. Duplicates of a communicator have their own.
struct CommMessages {
  static constexpr bool kForDuplicates = false;

  std::string name;
  std::map<std::type_index, std::shared_ptr<void>> by_space;
};

/// The messages of all communicators of the same ranks. The destructor closes them, when Kokkos is finalised.
struct AllMessages : sluice::detail::NonCopyable {
  ~AllMessages() {
    for (const auto& one : all) {
      if (const auto still = one.lock()) still->by_space.clear();
    }
  }

  std::vector<std::weak_ptr<CommMessages>> all;
};

struct FreeComm {
  void operator()(MPI_Comm* comm) const {
    MPI_Comm_free(comm);
    delete comm;
  }
};

/// One or two messages of a Request.
template <class Exec>
class Moving final : public Pending {
  using One = typename kokkos::Messages<Exec>::Request;

 public:
  Moving(std::shared_ptr<kokkos::Messages<Exec>> messages, One first, One second = {})
      : messages_(std::move(messages)), queue_(messages_->queue()), first_(std::move(first)),
        second_(std::move(second)) {}
  bool test() override {
    messages_->go_to(queue_);
    const bool first = messages_->test(first_);
    return messages_->test(second_) && first;
  }
  void wait() override {
    messages_->go_to(queue_);
    try {
      messages_->wait(first_);
    } catch (const Error& reason) {
      if (reason.code() != Code::timeout) messages_->wait(second_);
      throw;
    }
    messages_->wait(second_);
  }
  Context& context() override { return messages_->context(); }

 private:
  std::shared_ptr<kokkos::Messages<Exec>> messages_;
  kokkos::Queue<Exec> queue_;
  One first_, second_;
};

/// Returns the messages that all communicators of this handle and this kind of space share. Collective for a handle
/// that nothing was made with before.
template <class Exec>
std::shared_ptr<kokkos::Messages<Exec>> messages_of(MPI_Comm handle, const kokkos::Queue<Exec>& queue) {
  using Messages = kokkos::Messages<Exec>;
  const auto shared = kokkos::detail::shared_by(handle);
  auto mine = kokkos::detail::find_attribute<CommMessages>(handle);
  if (!mine) {
    mine = std::make_shared<CommMessages>(CommMessages{"kokkos_comm " + std::to_string(shared->named++), {}});
    kokkos::detail::set_attribute(handle, mine);
    auto& all = shared->template keep<AllMessages>()->all;
    std::erase_if(all, [](const auto& one) { return one.expired(); });
    all.push_back(mine);
  }
  auto& one = mine->by_space[typeid(Exec)];
  if (!one)
    one = std::make_shared<Messages>(shared->context, queue, mine->name + " on " + Exec::name(), 4,
                                     Messages::Unpacks::early);
  return std::static_pointer_cast<Messages>(one);
}

}  // namespace detail
}  // namespace sluice::kokkos_comm

template <>
struct KokkosComm::Impl::is_communication_space<sluice::kokkos_comm::CommSpace> : std::true_type {};

/// Ranks and an instance of an execution space, or a Queue. Communicators of one MPI handle share messages, as in MPI:
/// what one sends another receives, if their instances are of one kind. Movable, not copyable; one thread at a time
/// uses the communicators of a handle. @see sluice::kokkos::Messages
template <KokkosComm::KokkosExecutionSpace Exec>
class KokkosComm::Communicator<sluice::kokkos_comm::CommSpace, Exec> {
  using Messages = sluice::kokkos::Messages<Exec>;
  using Queue = sluice::kokkos::Queue<Exec>;

 public:
  using execution_space = Exec;
  using communication_space = sluice::kokkos_comm::CommSpace;
  using communicator_type = communication_space::communicator_type;
  using size_type = communication_space::size_type;
  using rank_type = communication_space::rank_type;

  /// Wraps MPI's communicator, which must outlive this object. Collective with the first one of its ranks.
  /// @throws sluice::Error as sluice::mpi::context
  [[nodiscard]] static Communicator from_raw(communicator_type comm, const Exec& exec = {}) {
    return Communicator(comm, Queue(exec), false);
  }
  /// Makes MPI's communicator with MPI_Comm_split or MPI_Comm_dup; the result owns and frees it. Collective. Returns
  /// nothing for MPI_UNDEFINED as `color`.
  /// @throws sluice::Error as sluice::mpi::context
  [[nodiscard]] static std::optional<Communicator> split_from_raw(communicator_type comm, int color, int key,
                                                                  const Exec& exec = {}) {
    return owned(Queue(exec), MPI_Comm_split, comm, color, key);
  }
  [[nodiscard]] static std::optional<Communicator> duplicate_from_raw(communicator_type comm, const Exec& exec = {}) {
    return owned(Queue(exec), MPI_Comm_dup, comm);
  }
  /// Like the functions above, with this object's communicator and instance.
  /// @throws sluice::Error with Code::misuse without MPI; otherwise as sluice::mpi::context
  [[nodiscard]] std::optional<Communicator> split(int color, int key) {
    return owned(queue_, MPI_Comm_split, mpi(), color, key);
  }
  [[nodiscard]] std::optional<Communicator> duplicate() { return owned(queue_, MPI_Comm_dup, mpi()); }

  /// Without MPI, on a Queue, of a host stream for example. Opens no channel.
  /// @param name  communicators of one context that exist at the same time have different names
  /// @param depth  by how many messages a sender may be ahead of each peer
  /// @throws sluice::Error with Code::bad_argument for a depth below 1
  [[nodiscard]] static Communicator from_context(const Queue& queue, sluice::Context context,
                                                 const std::string& name = "kokkos_comm", int depth = 4) {
    return Communicator(queue, std::make_shared<Messages>(context, queue, name, depth, Messages::Unpacks::early));
  }

  Communicator(Communicator&& other) noexcept : queue_(other.queue_) { *this = std::move(other); }
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(owned_, other.owned_);
    std::swap(queue_, other.queue_);
    std::swap(messages_, other.messages_);
    return *this;
  }

  const Exec& exec() const noexcept { return queue_.exec(); }
  /// MPI_COMM_NULL without MPI.
  const communicator_type& comm() const noexcept { return comm_; }
  communicator_type& comm() noexcept { return comm_; }
  size_type size() const noexcept { return messages_->context().size(); }
  rank_type rank() const noexcept { return messages_->context().rank(); }

  /// The messages of this communicator, moved to this object's instance: see Messages::go_to.
  const std::shared_ptr<Messages>& messages() {
    messages_->go_to(queue_);
    return messages_;
  }

 private:
  communicator_type mpi() const {
    if (comm_ == MPI_COMM_NULL)
      throw sluice::Error(sluice::Code::misuse, rank(), -1, 0, 0, "a Communicator without MPI is not split");
    return comm_;
  }
  Communicator(communicator_type comm, const Queue& queue, bool owned)
      : comm_(comm), owned_(owned ? new communicator_type(comm) : nullptr), queue_(queue),
        messages_(sluice::kokkos_comm::detail::messages_of<Exec>(comm, queue)) {}
  Communicator(const Queue& queue, std::shared_ptr<Messages> messages)
      : queue_(queue), messages_(std::move(messages)) {}
  static std::optional<Communicator> owned(const Queue& queue, auto make, communicator_type comm, auto... more) {
    communicator_type made = MPI_COMM_NULL;
    make(comm, more..., &made);
    if (made == MPI_COMM_NULL) return std::nullopt;
    return Communicator(made, queue, true);
  }

  communicator_type comm_ = MPI_COMM_NULL;
  // Frees `comm_`, of which it has a copy.
  std::unique_ptr<communicator_type, sluice::kokkos_comm::detail::FreeComm> owned_;
  Queue queue_;
  std::shared_ptr<Messages> messages_;
};

/// One or two messages. Keeps its Views until the messages complete. The destructor does not wait. Movable, not
/// copyable.
template <>
class KokkosComm::Request<sluice::kokkos_comm::CommSpace> {
 public:
  using communication_space = sluice::kokkos_comm::CommSpace;
  using request_type = communication_space::request_type;
  using rank_type = communication_space::rank_type;

  explicit Request(request_type request = nullptr) : request_(std::move(request)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request(Request&&) = default;
  Request& operator=(Request&&) = default;

  request_type& request() noexcept { return request_; }
  const request_type& request() const noexcept { return request_; }
  request_type* request_ptr() noexcept { return &request_; }
  const request_type* request_ptr() const noexcept { return &request_; }

  /// `wait`, or the `test` that returns true, calls `call` once on the host. On a GPU the instance may not have moved
  /// the messages yet.
  void add_callback(std::function<void()>&& call) { callbacks_.push_back(std::move(call)); }
  void extend_view_lifetime(const KokkosView auto& view) {
    add_callback([view] {});
  }

  /// When this returns, later work on the instance may overwrite what was sent, or reads what was received: in program
  /// order that has happened; on a GPU's stream the host does not wait for it.
  /// @throws sluice::Error like sluice::kokkos::Messages::wait
  void wait() {
    if (request_) request_->wait();
    request_.reset();
    for (const auto& call : std::exchange(callbacks_, {})) call();
  }
  /// @return true if the request has completed, or is empty. @throws as `wait`
  [[nodiscard]] bool test() {
    if (request_ && !request_->test()) return false;
    wait();
    return true;
  }

 private:
  request_type request_;
  std::vector<std::function<void()>> callbacks_;
};

namespace KokkosComm {

/// @see Request::wait, Request::test
inline void wait(Request<sluice::kokkos_comm::CommSpace>& request) { request.wait(); }
inline void wait(Request<sluice::kokkos_comm::CommSpace>&& request) { request.wait(); }
inline bool test(Request<sluice::kokkos_comm::CommSpace>& request) { return request.test(); }

/// Waits for all requests, then throws the first failure.
inline void wait_all(std::span<Request<sluice::kokkos_comm::CommSpace>> requests) {
  std::exception_ptr first;
  for (auto& request : requests) {
    try {
      request.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

/// Blocks the host until a request has completed, and returns its index; nothing if all are empty. On a stream a
/// receive completes when its wait is enqueued, which may be before the message lands.
/// @throws sluice::Error with Code::timeout after SLUICE_TIMEOUT, which changes nothing; like Request::wait
inline std::optional<int> wait_any(std::span<Request<sluice::kokkos_comm::CommSpace>> requests) {
  using Clock = std::chrono::steady_clock;
  for (const auto begin = Clock::now();; std::this_thread::yield()) {
    sluice::Context* context = nullptr;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].request() == nullptr) continue;
      context = &requests[i].request()->context();
      if (requests[i].test()) return static_cast<int>(i);
    }
    if (context == nullptr) return std::nullopt;
    if (Clock::now() - begin > context->timeout())
      throw sluice::Error(sluice::Code::timeout, context->rank(), -1, 0, 0, "none of the requests is over");
  }
}

namespace Impl {

template <KokkosView View, KokkosExecutionSpace Exec>
struct Send<View, Exec, sluice::kokkos_comm::CommSpace> {
  static auto execute(Communicator<sluice::kokkos_comm::CommSpace, Exec>& comm, const View& view, int dst) {
    const auto& messages = comm.messages();
    return Request<sluice::kokkos_comm::CommSpace>(
        std::make_shared<sluice::kokkos_comm::detail::Moving<Exec>>(messages, messages->send(view, dst)));
  }
};

template <MutKokkosView View, KokkosExecutionSpace Exec>
struct Recv<View, Exec, sluice::kokkos_comm::CommSpace> {
  static auto execute(Communicator<sluice::kokkos_comm::CommSpace, Exec>& comm, const View& view, int src) {
    const auto& messages = comm.messages();
    return Request<sluice::kokkos_comm::CommSpace>(
        std::make_shared<sluice::kokkos_comm::detail::Moving<Exec>>(messages, messages->receive(view, src)));
  }
};

template <KokkosExecutionSpace Exec, KokkosView SendView, MutKokkosView RecvView>
struct Exchange<sluice::kokkos_comm::CommSpace, Exec, SendView, RecvView> {
  using Space = sluice::kokkos_comm::CommSpace;
  static Request<Space> execute(Communicator<Space, Exec>& comm, const SendView& send_view, int dst,
                                const RecvView& recv_view, int src) {
    const auto& messages = comm.messages();
    auto received = messages->receive(recv_view, src);
    return Request<Space>(std::make_shared<sluice::kokkos_comm::detail::Moving<Exec>>(messages, std::move(received),
                                                                                      messages->send(send_view, dst)));
  }
};

}  // namespace Impl
}  // namespace KokkosComm

/// A sluice::kokkos_comm::Channel on the default instance of the default execution space, which is the one that
/// KokkosComm's own Channel uses.
template <>
class KokkosComm::Channel<sluice::kokkos_comm::CommSpace>
    : public sluice::kokkos_comm::Channel<Kokkos::DefaultExecutionSpace> {
  using Ends = Communicator<sluice::kokkos_comm::CommSpace, Kokkos::DefaultExecutionSpace>;

 public:
  /// Collective with the first use of the communicator's ranks.
  /// @param tag  Channels of one communicator that exist at the same time have different tags
  /// @throws sluice::Error as sluice::mpi::context
  explicit Channel(int dst, int src, int tag, MPI_Comm comm)
      : sluice::kokkos_comm::Channel<Kokkos::DefaultExecutionSpace>(Ends::from_raw(comm), dst, src, tag) {}
};
