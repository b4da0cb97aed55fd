// SPDX-License-Identifier: Apache-2.0
#include "base/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/words.hpp"

namespace sluice::base {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Linux limits it to net.core.somaxconn.
constexpr int kBacklog = 4096;

// TCP_RTO_MAX_MS of Linux 6.15, which older headers do not name.
constexpr int kLongestRetry = 44;

constexpr auto kLookAgain = milliseconds(20);  // between two checks of the interfaces

struct Socket {
  sockaddr_storage bytes{};
  socklen_t length = sizeof bytes;

  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
};

sa_family_t family_of(const Endpoint& endpoint) noexcept { return endpoint.version == 4 ? AF_INET : AF_INET6; }
std::uint8_t bytes_of(const Endpoint& endpoint) noexcept { return endpoint.version == 4 ? 4 : 16; }

Socket socket_address(const Endpoint& endpoint) {
  Socket socket;
  socket.length = endpoint.version == 4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  socket.get()->sa_family = family_of(endpoint);
  reinterpret_cast<sockaddr_in&>(socket.bytes).sin_port = htons(endpoint.port);  // IPv6 has its port in the same place
  if (endpoint.version == 6) reinterpret_cast<sockaddr_in6&>(socket.bytes).sin6_scope_id = endpoint.zone;
  replace_address(*socket.get(), endpoint);
  return socket;
}
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

struct Interface {
  std::string name;
  unsigned flags = 0;
  Endpoint endpoint;

  bool is(const std::string& chosen) const { return name == chosen || endpoint == parse_address(chosen); }
  bool loopback() const noexcept { return (flags & IFF_LOOPBACK) != 0; }
  bool up() const noexcept { return (flags & IFF_UP) != 0; }
  bool running() const noexcept { return up() && (flags & IFF_RUNNING) != 0; }
};

// Returns an entry for each address, in the order of the kernel, without link-local addresses.
std::vector<Interface> all_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    Endpoint endpoint = endpoint_of(one->ifa_addr);
    if (endpoint.version == 0 || link_local(endpoint)) continue;
    endpoint.port = 0;
    all.push_back({one->ifa_name, one->ifa_flags, endpoint});
  }
  return all;
}

void set(const Fd& socket, int level, int option, int value) noexcept {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

Fd new_socket(const Endpoint& endpoint) {
  return Fd(::socket(family_of(endpoint), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Request to the kernel for the route from one address to another.
struct RouteRequest {
  nlmsghdr header{};
  rtmsg route{};
  std::array<std::byte, 2 * RTA_SPACE(16)> attributes{};

  RouteRequest(const Endpoint& from, const Endpoint& to) {
    header.nlmsg_type = RTM_GETROUTE;
    header.nlmsg_flags = NLM_F_REQUEST;
    header.nlmsg_len = NLMSG_LENGTH(sizeof route);
    route.rtm_family = static_cast<unsigned char>(family_of(to));
    route.rtm_dst_len = route.rtm_src_len = bytes_of(to) * 8;
    add(RTA_DST, to);
    add(RTA_SRC, from);
  }

 private:
  void add(unsigned short type, const Endpoint& endpoint) {
    const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(bytes_of(endpoint))), type};
    std::byte* const at = attributes.data() + (header.nlmsg_len - NLMSG_LENGTH(sizeof route));
    std::memcpy(at, &attribute, sizeof attribute);
    std::memcpy(at + RTA_LENGTH(0), endpoint.address.data(), bytes_of(endpoint));
    header.nlmsg_len += static_cast<std::uint32_t>(RTA_SPACE(bytes_of(endpoint)));
  }
};

/// Returns the number of a route's outgoing interface; 0: the route has none.
int interface_of(const rtmsg& route, std::size_t bytes) {
  const auto* attribute =
      reinterpret_cast<const rtattr*>(reinterpret_cast<const std::byte*>(&route) + NLMSG_ALIGN(sizeof route));
  auto left = static_cast<int>(bytes);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == RTA_OIF) return *static_cast<const int*>(RTA_DATA(attribute));
  }
  return 0;
}

/// True if the source is an address of this interface. An address of the loopback belongs to every interface, because
/// any of them may lead to this host.
bool is_its_own(const Endpoint& source, int interface) {
  return std::ranges::any_of(all_interfaces(), [&](const Interface& one) {
    const bool same = one.endpoint.address == source.address && one.endpoint.version == source.version;
    return same && (one.loopback() || static_cast<int>(::if_nametoindex(one.name.c_str())) == interface);
  });
}

}  // namespace

Endpoint parse_address(const std::string& text) {
  Endpoint endpoint;
  if (::inet_pton(AF_INET, text.c_str(), endpoint.address.data()) == 1) endpoint.version = 4;
  if (::inet_pton(AF_INET6, text.c_str(), endpoint.address.data()) == 1) endpoint.version = 6;
  return endpoint;
}

Endpoint endpoint_of(const sockaddr* socket) noexcept {
  Endpoint endpoint;
  if (socket != nullptr && socket->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(*socket);
    endpoint.version = 4;
    endpoint.port = ntohs(in.sin_port);
    std::memcpy(endpoint.address.data(), &in.sin_addr, sizeof in.sin_addr);
  } else if (socket != nullptr && socket->sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(*socket);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
    endpoint.version = mapped ? 4 : 6;
    endpoint.port = ntohs(in.sin6_port);
    endpoint.zone = in.sin6_scope_id;
    const std::span bytes(in.sin6_addr.s6_addr);
    std::ranges::copy(mapped ? bytes.last(4) : bytes, endpoint.address.begin());
  }
  return endpoint;
}

void replace_address(sockaddr& socket, const Endpoint& endpoint) noexcept {
  const std::size_t place = endpoint.version == 4 ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  std::memcpy(reinterpret_cast<std::byte*>(&socket) + place, endpoint.address.data(), bytes_of(endpoint));
}

std::string address_text(const Endpoint& endpoint) {
  Socket socket = socket_address(endpoint);
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(socket.get(), socket.length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

std::string text_of(const Endpoint& endpoint) {
  const std::string address = address_text(endpoint);
  return (endpoint.version == 6 ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port);
}

bool loopback(const Endpoint& endpoint) noexcept {
  static constexpr std::array<std::uint8_t, 16> kOne = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return endpoint.version == 4 ? endpoint.address[0] == 127 : endpoint.address == kOne;
}

bool link_local(const Endpoint& endpoint) noexcept {
  const auto& address = endpoint.address;
  return endpoint.version == 6 ? address[0] == 0xfe && (address[1] & 0xc0) == 0x80
                               : address[0] == 169 && address[1] == 254;
}

std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (error != 0) throw std::runtime_error("there is no host " + host + ": " + ::gai_strerror(error));
  // One of each version in turn (RFC 8305), so that a version without a route costs one attempt.
  std::vector<Endpoint> first;
  std::vector<Endpoint> second;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    auto& of_version = one->ai_family == found->ai_family ? first : second;
    of_version.push_back(endpoint_of(one->ai_addr));
    of_version.back().port = port;
  }
  std::vector<Endpoint> in_turn;
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) in_turn.push_back(first[i]);
    if (i < second.size()) in_turn.push_back(second[i]);
  }
  return in_turn;
}

Endpoint own_address(const std::string& chosen) {
  constexpr auto kComesUpWithin = seconds(5);
  const auto deadline = Clock::now() + kComesUpWithin;
  const auto fits = [&](const Interface& one) { return chosen.empty() ? !one.loopback() : one.is(chosen); };
  for (;;) {
    std::vector<Interface> all = all_interfaces();
    std::erase_if(all, [](const Interface& one) { return !one.running(); });
    std::ranges::stable_sort(all, {}, [](const Interface& one) { return one.endpoint.version; });  // IPv4 first
    const auto found = std::ranges::find_if(all, fits);
    if (found != all.end()) return found->endpoint;
    if (interface_comes_up() && Clock::now() < deadline) {
      std::this_thread::sleep_for(kLookAgain);
      continue;
    }
    if (!chosen.empty())
      throw std::invalid_argument("SLUICE_INTERFACE=" + chosen + ": no interface that is up has this name or address");
    if (!all.empty()) return all.front().endpoint;
    throw std::invalid_argument("no network interface is up, not even the loopback");
  }
}

std::vector<Endpoint> addresses_of(const std::string& interface) {
  std::vector<Endpoint> addresses;
  for (const Interface& one : all_interfaces()) {
    if (one.is(interface)) addresses.push_back(one.endpoint);
  }
  return addresses;
}

bool interface_comes_up(bool without_carrier) {
  constexpr unsigned kCarrier = 0x10000;  // IFF_LOWER_UP, which <net/if.h> does not have
  return std::ranges::any_of(all_interfaces(), [&](const Interface& one) {
    const bool carrier = without_carrier || (one.flags & kCarrier) != 0;
    return !one.loopback() && one.up() && carrier && !(one.running() && usable(one.endpoint));
  });
}

bool usable(const Endpoint& endpoint) {
  const Fd socket(::socket(family_of(endpoint), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Socket address = socket_address(endpoint);
  return !socket || ::bind(socket.get(), address.get(), address.length) == 0;
}

std::optional<Way> way(const Endpoint& from, const Endpoint& to) try {
  if (from.version != to.version) return Way::none;
  const Fd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  constexpr timeval kPatience{1, 0};
  if (kernel) ::setsockopt(kernel.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const RouteRequest request(from, to);
  if (!kernel || ::send(kernel.get(), &request, request.header.nlmsg_len, 0) < 0) return std::nullopt;
  alignas(nlmsghdr) std::array<std::byte, 4096> answer{};
  const auto bytes = ::recv(kernel.get(), answer.data(), answer.size(), 0);
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (bytes < 0 || !NLMSG_OK(header, static_cast<std::size_t>(bytes))) return std::nullopt;
  if (header->nlmsg_type == NLMSG_ERROR) {
    const int error = -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
    if (error == EOPNOTSUPP || error == EPERM) return std::nullopt;  // a sandbox
    return Way::none;
  }
  const auto& route = *static_cast<const rtmsg*>(NLMSG_DATA(header));
  if (route.rtm_type == RTN_LOCAL) return Way::itself;
  if (route.rtm_type != RTN_UNICAST) return Way::none;
  return is_its_own(from, interface_of(route, header->nlmsg_len - NLMSG_LENGTH(sizeof route))) ? Way::own : Way::other;
} catch (const std::system_error&) {
  return std::nullopt;  // no descriptor is free
}

Fd listen_on(const Endpoint& endpoint) {
  Fd socket = new_socket(endpoint);
  Socket address = socket_address(endpoint);
  if (socket && endpoint.version == 6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (socket) set(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // ended connections keep a port busy for a minute
  if (!socket || ::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    throw_errno("cannot listen at " + text_of(endpoint));
  }
  return socket;
}

Fd listen_everywhere(std::uint16_t port) {
  const Endpoint both{.port = port, .version = 6};
  return listen_on(new_socket(both) ? both : Endpoint{.port = port, .version = 4});  // a kernel may lack IPv6
}

Endpoint own_end(const Fd& socket) {
  Socket address;
  if (::getsockname(socket.get(), address.get(), &address.length) != 0) throw_errno("a socket without an address");
  return endpoint_of(address.get());
}

Fd begin_connect(const Endpoint& endpoint) {
  Fd socket = new_socket(endpoint);
  if (!socket) return socket;
  Socket address = socket_address(endpoint);
  if (::connect(socket.get(), address.get(), address.length) == 0 || errno == EINPROGRESS) return socket;
  const int error = errno;  // closing may change errno
  socket = Fd();
  errno = error;
  return socket;
}

Fd accept_one(const Fd& listener) {
  return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void keep_alive(const Fd& socket, std::chrono::nanoseconds timeout) noexcept {
  const milliseconds limit = std::clamp(std::chrono::ceil<milliseconds>(timeout), milliseconds(1000),
                                        std::chrono::duration_cast<milliseconds>(std::chrono::hours(24)));
  const auto interval = std::max(std::chrono::ceil<seconds>(limit / 10), seconds(1));
  // The last answer may be one interval old when the link goes down, and the next probe may come one interval after the
  // link is up again.
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds(limit + 2 * interval).count()));
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(interval.count()));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval.count()));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 127);  // the user timeout ends the connection
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Without this, the pauses between retries double, up to the whole timeout, so that a link that is up again would not
  // be noticed.
  set(socket, IPPROTO_TCP, kLongestRetry, static_cast<int>(milliseconds(interval).count()));
}

}  // namespace sluice::base
