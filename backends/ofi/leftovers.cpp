// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/leftovers.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace sluice::backends::ofi {
namespace {

constexpr const char* kFolder = "/dev/shm";

std::vector<std::string> names() {
  std::vector<std::string> all;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(kFolder, ignored)) all.push_back(file.path().filename());
  return all;
}

std::string path_of(const std::string& name) { return std::string(kFolder) + "/" + name; }

/// The name of an endpoint's own file, "PID:UID:NUMBER", with which the names of all its files begin; empty: it is the
/// file of no endpoint.
std::string endpoint_of(const std::string& name) {
  int length = 0;  // stays, unless all of it matches
  (void)std::sscanf(name.c_str(), "%*[0-9]:%*[0-9]:%*[0-9]%n", &length);
  const std::string own = name.substr(0, static_cast<std::size_t>(length));
  return own == name || name[own.size()] == '_' ? own : std::string();
}

bool process_lives(const std::string& endpoint) {
  pid_t process = 0;
  const auto [end, error] = std::from_chars(endpoint.data(), endpoint.data() + endpoint.size(), process);
  return error != std::errc() || ::kill(process, 0) == 0 || errno != ESRCH;  // in this name space
}

/// The kernel grants this lease only where no other descriptor and no mapping of the file is left, of whomever.
bool belongs_to_nobody(const base::Fd& file) {
  ::fcntl(file.get(), F_SETSIG, SIGURG);  // sent when another process opens the file; SIGIO would end this one
  return ::fcntl(file.get(), F_SETLEASE, F_WRLCK) == 0;
}

enum class Found : std::uint8_t { settled, being_removed, in_use };

/// Removes the file if that is proved. The lease goes with the descriptor.
Found remove_if_nobodys(const std::string& name) {
  const std::string path = path_of(name);
  const base::Fd file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return errno == EWOULDBLOCK ? Found::being_removed : Found::settled;  // another process has the lease
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return Found::settled;  // not ours to remove
  if (!belongs_to_nobody(file)) return Found::in_use;
  // Files are removed under the lease alone, so the name is still this file's. The pages are freed before the name:
  // other processes that look for room wait for the lease.
  if (::fstat(file.get(), &status) == 0 && status.st_nlink > 0 && ::ftruncate(file.get(), 0) == 0)
    ::unlink(path.c_str());
  return Found::settled;
}

/// How many milliseconds one call waits, for all files.
struct Patience {
  int for_users = 20;  // another process may be looking at the file too; or its owner lives in another name space
  int for_removal = 1000;
};

void remove_of_the_dead(const std::string& name, const std::string& endpoint, Patience& patience) {
  for (;;) {
    const Found found = remove_if_nobodys(name);
    if (found == Found::settled || (found == Found::in_use && process_lives(endpoint))) return;
    if ((found == Found::in_use ? patience.for_users : patience.for_removal)-- <= 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void remove_all() {
  Patience patience;
  const std::vector<std::string> all = names();
  for (const std::string& name : all) {
    if (endpoint_of(name) == name) remove_of_the_dead(name, name, patience);
  }
  // Large messages have files of their own, which their sender does not keep open.
  for (const std::string& name : all) {
    const std::string endpoint = endpoint_of(name);
    if (!endpoint.empty() && endpoint != name && ::access(path_of(endpoint).c_str(), F_OK) != 0)
      remove_of_the_dead(name, endpoint, patience);
  }
}

struct Usage {
  std::string name;
  std::size_t bytes;
  uid_t user;
};

std::vector<Usage> largest_first() {
  std::vector<Usage> all;
  for (const std::string& name : names()) {
    struct stat status {};
    constexpr std::size_t kBlock = 512;
    if (::lstat(path_of(name).c_str(), &status) == 0)
      all.push_back({name, static_cast<std::size_t>(status.st_blocks) * kBlock, status.st_uid});
  }
  std::ranges::stable_sort(all, std::greater(), &Usage::bytes);
  return all;
}

}  // namespace

void remove_leftovers() noexcept {
  try {
    remove_all();
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::info, std::string("files of killed processes stay in ") + kFolder + ": " + reason.what());
  }
}

std::string state_of_dev_shm() {
  constexpr std::size_t kNamed = 8;
  std::error_code error;
  const auto room = std::filesystem::space(kFolder, error);
  if (error) return std::string("there is no ") + kFolder;
  std::string text = std::string(kFolder) + " has " + std::to_string(room.available) + " of " +
                     std::to_string(room.capacity) + " bytes free";
  const std::vector<Usage> all = largest_first();
  for (std::size_t i = 0; i < std::min(all.size(), kNamed); ++i)
    text += (i == 0 ? "; in it: " : ", ") + all[i].name + " (" + std::to_string(all[i].bytes) + " bytes, of user " +
            std::to_string(all[i].user) + ")";
  if (all.size() > kNamed) text += ", and " + std::to_string(all.size() - kNamed) + " more";
  return text;
}

bool dev_shm_has_room(std::size_t bytes) {
  std::error_code error;
  const auto room = std::filesystem::space(kFolder, error);
  return error || room.available >= bytes;
}

}  // namespace sluice::backends::ofi
