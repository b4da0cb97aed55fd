// SPDX-License-Identifier: Apache-2.0
#include "base/trace.hpp"

#include "base/process.hpp"
#include "base/timeline_file.hpp"
#include "base/words.hpp"
#include "tests/unit/locale.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace trace = sluice::base::trace;
using nlohmann::json;
using sluice::tests::contains;
using sluice::tests::Program;

/// A file of the calling test alone.
std::string a_file() {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "sluice_" + test->name() + "_" + std::to_string(::getpid()) + ".json";
}

class Trace : public testing::Test {
 public:
  ~Trace() override {
    std::filesystem::remove(file_);
    std::filesystem::remove_all(folder_);
  }

 protected:
  /// In a process of its own, as a recorder has it.
  template <class Work>
  std::string recorded(const std::string& job, Work work) const {
    Program program([&] {
      trace::start(file_, job);
      work();
      trace::flush();
      return 0;
    });
    const auto result = program.result();
    EXPECT_EQ(result.code, 0);
    return result.err;
  }

  json events() const {
    std::ifstream in(file_);
    return json::parse(in).at("traceEvents");
  }
  json of_phase(const std::string& phase) const {
    json found = json::array();
    for (const auto& event : events()) {
      if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
  }

  void merge_the_rest() const { trace::merge_the_rest(file_, "job"); }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& slice : of_phase("X")) all.insert(slice.at("name"));
    return all;
  }

  const std::string file_ = a_file();
  const std::string folder_ = file_ + ".job.parts";  // of the job "job"
};

TEST_F(Trace, has_nothing_but_its_frame_before_anything_was_recorded) {
  recorded("job", [] {});
  EXPECT_EQ(events(), json::array());
}

TEST_F(Trace, slices_have_their_place_and_what_is_known_of_them) {
  recorded("job", [] {
    trace::set_rank(3);
    const trace::Channel channel{"to \"rank\" 1\n", 7, trace::kNone, true};
    const trace::Span put("put", channel, 5, 640);
  });
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), 1U);
  EXPECT_EQ(slices[0].at("name"), "put");
  EXPECT_EQ(slices[0].at("pid"), 3);
  EXPECT_GE(slices[0].at("ts"), 0);
  EXPECT_GE(slices[0].at("dur"), 0);
  EXPECT_EQ(slices[0].at("args"), (json{{"channel", "to \"rank\" 1\n"}, {"epoch", 5}, {"bytes", 640}}));
  std::set<std::string> names;
  for (const auto& name : of_phase("M")) names.insert(name.at("args").value("name", ""));
  EXPECT_EQ(names, (std::set<std::string>{"", "rank 3", "host"}));
}

TEST_F(Trace, is_valid_whatever_the_program_s_locale_and_names_are) {
  const sluice::tests::DecimalComma locale;
  recorded("job", [&] {
    locale.use();
    const trace::Channel channel{"caf\xe9", 7, trace::kNone, true};
    const trace::Span put("put", channel, 5, 1'000'000);
    const sluice::Span work("\xff\xfe");
  });
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0].at("name"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(slices[1].at("args"), (json{{"channel", "caf\xef\xbf\xbd"}, {"epoch", 5}, {"bytes", 1'000'000}}));
}

TEST_F(Trace, arrows_of_an_epoch_have_one_name_and_lie_at_their_slices) {
  recorded("job", [] {
    const trace::Channel channel{"c", 7, trace::new_track(0, "engine"), true};
    { const trace::Span put("put", channel, 5, 8, trace::Arrow::begins); }
    { const trace::Span post("post", channel, 5, 0, trace::Arrow::passes, channel.engine); }
    { const trace::Span wait("wait", channel, 5, 8, trace::Arrow::ends); }
    { const trace::Span next("put", channel, 6, 8, trace::Arrow::begins); }
  });
  const json begins = of_phase("s");
  ASSERT_EQ(begins.size(), 2U);
  EXPECT_NE(begins[0].at("id"), begins[1].at("id"));
  EXPECT_EQ(begins[0].at("id"), of_phase("t").at(0).at("id"));
  EXPECT_EQ(begins[0].at("id"), of_phase("f").at(0).at("id"));
  const json slices = of_phase("X");
  EXPECT_EQ(begins[0].at("ts"), slices[0].at("ts"));
  EXPECT_EQ(of_phase("t").at(0).at("tid"), slices[1].at("tid"));
  EXPECT_NE(of_phase("t").at(0).at("tid"), slices[0].at("tid"));
  EXPECT_NEAR(of_phase("f").at(0).at("ts").get<double>(),
              slices[2].at("ts").get<double>() + slices[2].at("dur").get<double>(), 0.002);
}

TEST_F(Trace, processes_of_a_job_share_the_file_and_its_clock) {
  recorded("job", [] { const trace::Span first("first"); });
  recorded("job", [] {
    trace::set_rank(1);
    const trace::Span second("second");
  });
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0].at("name"), "first");
  EXPECT_EQ(slices[1].at("name"), "second");
  EXPECT_EQ(slices[1].at("pid"), 1);
  EXPECT_LE(slices[0].at("ts").get<double>() + slices[0].at("dur").get<double>(), slices[1].at("ts").get<double>());
}

TEST_F(Trace, of_a_child_of_fork_stands_in_a_file_of_its_own) {
  recorded("job", [this] {
    { const trace::Span first("of the parent"); }
    const pid_t child = ::fork();
    if (child == 0) {
      { const trace::Span lost("of the parent's rank"); }
      trace::start(file_, "another job");
      { const trace::Span own("of the child"); }
      trace::flush();
      ::_exit(::rename((file_ + "." + std::to_string(::getpid())).c_str(), (file_ + ".child").c_str()));
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    const trace::Span last("of the parent");
  });
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), 2U);
  for (const auto& slice : slices) EXPECT_EQ(slice.at("name"), "of the parent");
  std::ifstream in(file_ + ".child");
  std::stringstream childs;
  childs << in.rdbuf();
  EXPECT_TRUE(contains(childs.str(), "of the child"));
  EXPECT_FALSE(contains(childs.str(), "of the parent"));
  std::filesystem::remove(file_ + ".child");
}

/// Tracks of the parent mean others in the child, or none.
TEST_F(Trace, of_a_child_has_no_slice_that_its_parent_began) {
  recorded("job", [this] {
    const trace::Track own = trace::current();
    trace::Track stream = trace::kNone;
    for (int i = 0; i < 1000; ++i) stream = trace::new_track(0, "stream");
    std::optional<trace::OnTrack> here(std::in_place, stream);
    std::optional<sluice::Span> programs(std::in_place, "of the parent");
    std::optional<trace::Span> librarys(std::in_place, "of the parent");
    const pid_t child = ::fork();
    if (child == 0) {
      trace::start(file_, "another job");
      librarys.reset();
      programs.reset();
      here.reset();
      if (trace::current() != own) ::_exit(2);
      { const trace::Span mine("of the child"); }
      trace::flush();
      ::_exit(::rename((file_ + "." + std::to_string(::getpid())).c_str(), (file_ + ".child").c_str()));
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  EXPECT_EQ(of_phase("X").size(), 2U);
  std::filesystem::rename(file_ + ".child", file_);
  EXPECT_EQ(names(), std::set<std::string>{"of the child"});
}

TEST_F(Trace, of_a_second_start_stands_in_the_file_where_the_first_has_failed) {
  Program program([this] {
    try {
      trace::start("/dev/null", "job");
    } catch (const std::invalid_argument&) {
      trace::start(file_, "job");
      { const trace::Span slice("slice"); }
      trace::flush();
      return 0;
    }
    return 1;
  });
  EXPECT_EQ(program.result().code, 0);
  EXPECT_EQ(of_phase("X").size(), 1U);
}

TEST_F(Trace, another_job_s_file_and_any_other_is_begun_anew) {
  std::ofstream(file_) << "not a timeline\n";
  recorded("first", [] { const trace::Span first("first"); });
  EXPECT_EQ(of_phase("X").size(), 1U);
  recorded("second", [] { const trace::Span second("second"); });
  ASSERT_EQ(of_phase("X").size(), 1U);
  EXPECT_EQ(of_phase("X").at(0).at("name"), "second");
}

TEST_F(Trace, what_was_written_is_not_written_again) {
  recorded("job", [] {
    { const trace::Span first("first"); }
    trace::flush();
    const trace::Span second("second");
  });
  EXPECT_EQ(of_phase("X").size(), 2U);
  EXPECT_EQ(of_phase("M").size(), 3U);
}

TEST_F(Trace, of_each_thread_the_last_are_kept_and_that_is_said) {
  const std::string said = recorded("job", [] {
    for (std::size_t i = 0; i < trace::kMost + 10; ++i)
      trace::add({"slice", "", i + 1, 0, {}, trace::current(), sluice::base::Clock::now(), {}});
  });
  EXPECT_TRUE(contains(said, "lacks the first 10 events")) << said;
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), trace::kMost);
  std::uint64_t first = trace::kMost;
  for (const auto& slice : slices) first = std::min(first, slice.at("args").at("epoch").get<std::uint64_t>());
  EXPECT_EQ(first, 11U);
}

TEST_F(Trace, threads_have_tracks_and_streams_theirs_whoever_runs_them) {
  recorded("job", [] {
    trace::set_rank(2);
    const trace::Track stream = trace::new_track(2, "host stream");
    { const trace::Span mine("mine"); }
    std::thread([stream] {
      const trace::OnTrack here(stream);
      const sluice::Span work("its work");
    }).join();
    {
      const trace::OnTrack here(stream);
      const sluice::Span work("its work");
    }
    const trace::Span mine("mine");
  });
  std::map<std::string, std::set<int>> tracks;
  for (const auto& slice : of_phase("X")) tracks[slice.at("name")].insert(slice.at("tid").get<int>());
  EXPECT_EQ(tracks["mine"].size(), 1U);
  EXPECT_EQ(tracks["its work"].size(), 1U);
  EXPECT_NE(tracks["mine"], tracks["its work"]);
}

TEST_F(Trace, nothing_is_recorded_before_anybody_asks) {
  Program program([&] {
    {
      const trace::Span slice("slice");
      const sluice::Span work("work");
    }
    const bool quiet = !sluice::tracing();
    trace::start(file_, "job");
    trace::flush();
    return quiet && sluice::tracing() ? 0 : 1;
  });
  EXPECT_EQ(program.result().code, 0);
  EXPECT_EQ(of_phase("X"), json::array());
}

/// As a process leaves it that was killed while it wrote.
TEST_F(Trace, half_a_line_is_no_harm) {
  recorded("job", [] { const trace::Span first("first"); });
  std::string text;
  std::getline(std::ifstream(file_), text, '\0');
  std::ofstream(file_) << text.substr(0, text.size() - 4) << ",\n{\"ph\":\"X\",\"pid\":0,\"ti";
  recorded("job", [] { const trace::Span second("second"); });
  EXPECT_EQ(names(), (std::set<std::string>{"first", "second"}));
  recorded("job", [] { const trace::Span third("third"); });
  EXPECT_EQ(of_phase("X").size(), 3U);
}

TEST_F(Trace, a_program_may_change_its_folder) {
  const std::string name = std::filesystem::path(file_).filename();
  Program program([&] {
    std::filesystem::current_path(std::filesystem::path(file_).parent_path());
    trace::start(name, "job");
    { const trace::Span slice("slice"); }
    std::filesystem::current_path("/");
    trace::flush();
    return 0;
  });
  EXPECT_EQ(program.result().code, 0);
  EXPECT_EQ(of_phase("X").size(), 1U);
}

TEST_F(Trace, a_file_that_cannot_be_written_is_an_error_that_says_so) {
  Program program([] {
    try {
      trace::start("/dev/null", "job");
    } catch (const std::invalid_argument& error) {
      return contains(error.what(), "/dev/null") ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(program.result().code, 0);
}

/// From now on the kernel does this at such a call of this process, and of those that it starts, where one of these
/// bits is set in an argument.
void at_call(int call, unsigned action, unsigned argument, unsigned bits) {
  std::array<sock_filter, 6> filter{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 3),
       BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                static_cast<unsigned>(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t))),
       BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1), BPF_STMT(BPF_RET | BPF_K, action),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/// The call answers with an error; 0: as if it had done it, which it has not. The first argument is a descriptor, or
/// the address of a name.
void answer(int call, int error) { at_call(call, SECCOMP_RET_ERRNO | static_cast<unsigned>(error), 0, ~0U); }

TEST_F(Trace, needs_no_locks_of_the_file_system) {
  for (const int error : {ENOSYS, ENOLCK}) {
    Program program([&] {
      answer(SYS_flock, error);
      trace::start(file_, "job " + std::to_string(error));
      { const trace::Span slice("slice"); }
      trace::flush();
      return 0;
    });
    EXPECT_EQ(program.result().code, 0) << "flock answers " << error;
    EXPECT_EQ(of_phase("X").size(), 1U);
  }
}

TEST_F(Trace, has_all_of_processes_that_write_at_once_without_locks) {
  constexpr int kProcesses = 8;
  constexpr int kTimes = 25;
  Program program([&] {
    answer(SYS_flock, 0);
    for (int rank = 0; rank < kProcesses; ++rank) {
      if (::fork() != 0) continue;
      trace::start(file_, "job");
      trace::set_rank(rank);
      for (int i = 0; i < kTimes; ++i) {
        { const trace::Span slice("slice", {}, static_cast<std::uint64_t>(rank * kTimes + i + 1)); }
        trace::flush();
      }
      ::_exit(trace::lost() ? 1 : 0);
    }
    int bad = 0;
    for (int status = 0; ::wait(&status) > 0;) bad += status != 0;
    return bad;
  });
  EXPECT_EQ(program.result().code, 0);
  std::set<int> epochs;
  for (const auto& slice : of_phase("X")) epochs.insert(slice.at("args").at("epoch").get<int>());
  EXPECT_EQ(epochs.size(), static_cast<std::size_t>(kProcesses * kTimes));
  EXPECT_EQ(of_phase("X").size(), epochs.size()) << "once each";
  EXPECT_FALSE(std::filesystem::exists(file_ + ".job.parts"));
}

/// A full device, as a limit on the size of files.
void limit_files(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_F(Trace, is_valid_on_a_device_that_gets_full_and_says_once_what_it_lacks) {
  constexpr std::size_t kTimes = 20;
  const std::string said = recorded("job", [] {
    limit_files(16 * 1024);
    for (std::size_t i = 0; i < kTimes; ++i) {
      for (int k = 0; k < 20; ++k) const trace::Span slice("slice");
      trace::flush();
    }
  });
  EXPECT_EQ(sluice::tests::lines(said), 1) << said;
  EXPECT_TRUE(sluice::tests::contains(said, "the timeline lacks events: cannot write to " + file_)) << said;
  const auto slices = of_phase("X").size();
  EXPECT_GT(slices, 20U);
  EXPECT_LT(slices, kTimes * 20);
  merge_the_rest();
  EXPECT_EQ(of_phase("X").size(), kTimes * 20) << "there is room again";
}

TEST_F(Trace, that_lacks_events_is_exit_code_1) {
  ::setenv("SLUICE_TRACE", file_.c_str(), 1);
  Program program([] {
    return sluice::run_threads(1, [](sluice::Context&) {
      for (int i = 0; i < 1000; ++i) const sluice::Span slice("slice");
      limit_files(4096);
    });
  });
  const auto result = program.result();
  ::unsetenv("SLUICE_TRACE");
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(sluice::tests::contains(result.err, "the timeline lacks events")) << result.err;
  EXPECT_EQ(events(), json::array());
  for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
    if (entry.path().string().starts_with(file_ + '.')) std::filesystem::remove_all(entry.path());
  }
}

TEST_F(Trace, that_a_parent_lost_events_is_not_said_of_its_child) {
  Program program([this] {
    trace::start(file_, "job");
    for (int i = 0; i < 1000; ++i) const trace::Span slice("slice");
    limit_files(4096);
    trace::flush();
    if (!trace::lost()) return 1;
    if (::fork() == 0) ::_exit(trace::lost() ? 2 : 0);
    int status = -1;
    ::wait(&status);
    return WEXITSTATUS(status);
  });
  EXPECT_EQ(program.result().code, 0);
}

/// Some networks' file systems say only then that there is no room.
TEST_F(Trace, is_not_taken_for_written_before_it_is_on_disk) {
  Program program([this] {
    trace::start(file_, "job");
    { const trace::Span slice("slice"); }
    answer(SYS_fsync, ENOSPC);
    trace::flush();
    return trace::lost() ? 0 : 1;
  });
  EXPECT_EQ(program.result().code, 0);
  EXPECT_EQ(of_phase("X").size(), 0U);
  EXPECT_TRUE(std::filesystem::exists(folder_));
}

TEST_F(Trace, that_another_process_merges_is_known_by_one_error_alone) {
  Program program([this] {
    trace::start(file_, "job");
    { const trace::Span slice("slice"); }
    at_call(SYS_openat, SECCOMP_RET_ERRNO | EDQUOT, 2, O_EXCL);
    trace::flush();
    return trace::lost() ? 0 : 1;
  });
  EXPECT_EQ(program.result().code, 0);
  merge_the_rest();
  EXPECT_EQ(of_phase("X").size(), 1U);
}

/// The process is killed before it removes the part. The next process continues the merge.
TEST_F(Trace, has_events_once_of_a_process_that_was_killed_after_it_had_added_them) {
  constexpr std::size_t kTimes = 10;  // parts are added in any order
  for (std::size_t i = 1; i <= kTimes; ++i) {
    Program killed([this] {
      trace::start(file_, "job");
      { const trace::Span slice("of the killed"); }
      at_call(SYS_unlinkat, SECCOMP_RET_KILL_PROCESS, 1, ~0U);
#ifdef SYS_unlink
      at_call(SYS_unlink, SECCOMP_RET_KILL_PROCESS, 0, ~0U);
#endif
      trace::flush();
      return 0;
    });
    EXPECT_EQ(killed.result().code, 128 + SIGSYS);
    EXPECT_EQ(of_phase("X").size(), 2 * i - 1);
    recorded("job", [] { const trace::Span slice("of the next"); });
    EXPECT_EQ(of_phase("X").size(), 2 * i);
    EXPECT_FALSE(std::filesystem::exists(folder_));
  }
}

/// One process merges, as the launcher of another host does, when the rest is to be merged.
TEST_F(Trace, waits_for_another_process_that_merges) {
  std::filesystem::create_directory(folder_);
  Program another([this] {
    sigset_t go;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &go, nullptr);
    std::ofstream(folder_ + "/merging") << sluice::base::process_name();
    ::write(STDOUT_FILENO, "\n", 1);
    int signal = 0;
    ::sigwait(&go, &signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the other one waits by then, usually
    return ::unlink((folder_ + "/merging").c_str());
  });
  another.read_line();
  recorded("job", [] { const trace::Span slice("slice"); });
  EXPECT_EQ(std::filesystem::file_size(file_), 0U);
  another.signal(SIGUSR1);
  merge_the_rest();
  EXPECT_EQ(of_phase("X").size(), 1U);
  EXPECT_EQ(another.result().code, 0);
}

TEST_F(Trace, lacks_what_a_process_could_not_make_a_part_of) {
  std::filesystem::create_directory(folder_);
  std::ofstream(folder_ + "/.begun") << "half a p";
  EXPECT_THROW(merge_the_rest(), std::runtime_error);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/.begun"));
}

TEST_F(Trace, that_has_no_room_for_its_folder_is_refused_with_the_name_of_that_place) {
  Program program([this] {
    at_call(SYS_faccessat, SECCOMP_RET_ERRNO | EACCES, 1, ~0U);
#ifdef SYS_access
    answer(SYS_access, EACCES);
#endif
    try {
      trace::start(file_, "job");
    } catch (const std::invalid_argument& error) {
      const auto place = std::filesystem::path(file_).parent_path().string();
      return contains(error.what(), "folder " + place + ": ") ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(program.result().code, 0);
}

TEST_F(Trace, is_not_taken_for_whole_where_its_folder_cannot_be_read) {
  std::ofstream(folder_) << "no folder\n";
  EXPECT_THROW(merge_the_rest(), std::runtime_error);
  EXPECT_TRUE(std::filesystem::exists(folder_));
}

TEST_F(Trace, leaves_alone_what_is_no_part_of_it) {
  std::filesystem::create_directory(folder_);
  std::ofstream(folder_ + "/notes") << "mine\n";
  EXPECT_THROW(merge_the_rest(), std::runtime_error);
  std::string text;
  std::getline(std::ifstream(folder_ + "/notes"), text);
  EXPECT_EQ(text, "mine");
}

TEST_F(Trace, does_not_wait_for_a_folder_that_cannot_be_made) {
  std::filesystem::create_symlink(folder_ + ".none", folder_);
  Program program([this] {
    ::alarm(20);
    try {
      trace::start(file_, "job");
    } catch (const std::exception& error) {
      return contains(error.what(), folder_) ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(program.result().code, 0);
}

/// It dies with its events recorded, and nothing flushed since.
template <class Work>
void record_and_die(const std::string& file, Work work) {
  Program program([&] {
    trace::start(file, "job");
    work();
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(program.result().code, 128 + SIGKILL);
}

TEST_F(Trace, of_a_killed_process_has_all_that_a_slice_has) {
  record_and_die(file_, [] {
    trace::set_rank(3);
    const trace::Channel channel{"to \"rank\" 1\n", 7, trace::kNone, true};
    { const trace::Span put("put", channel, 5, 640, trace::Arrow::begins); }
    trace::mark("failed", channel, "why");
    { const sluice::Span own(std::string(2000, 'x')); }
  });
  merge_the_rest();
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0].at("name"), "put");
  EXPECT_EQ(slices[0].at("pid"), 3);
  EXPECT_EQ(slices[0].at("args"), (json{{"channel", "to \"rank\" 1\n"}, {"epoch", 5}, {"bytes", 640}}));
  EXPECT_EQ(slices[1].at("name"), std::string(2000, 'x'));
  EXPECT_EQ(of_phase("s").size(), 1U);
  ASSERT_EQ(of_phase("i").size(), 1U);
  EXPECT_EQ(of_phase("i")[0].at("args").at("why"), "why");
  ASSERT_EQ(of_phase("M").size(), 3U);
  EXPECT_EQ(of_phase("M")[2].at("args").at("name"), "host");
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(Trace, of_a_killed_process_has_once_what_it_had_written) {
  record_and_die(file_, [] {
    { const trace::Span first("first"); }
    trace::flush();
    { const trace::Span second("second"); }
    std::thread([] { const trace::Span third("third"); }).join();
  });
  merge_the_rest();
  EXPECT_EQ(of_phase("X").size(), 3U);
  EXPECT_EQ(names(), (std::set<std::string>{"first", "second", "third"}));
}

TEST_F(Trace, of_a_killed_process_has_the_last_events_of_each_thread) {
  record_and_die(file_, [] {
    for (std::size_t i = 0; i < trace::kMost + 10; ++i)
      trace::add({"slice", "", i + 1, 0, {}, trace::current(), sluice::base::Clock::now(), {}});
  });
  merge_the_rest();
  const json slices = of_phase("X");
  ASSERT_EQ(slices.size(), trace::kMost - 1) << "the oldest may be half overwritten";
  std::uint64_t first = trace::kMost;
  for (const auto& slice : slices) first = std::min(first, slice.at("args").at("epoch").get<std::uint64_t>());
  EXPECT_EQ(first, 12U);
}

/// The process dies while it writes a part, or before it publishes the part, or before it merges.
TEST_F(Trace, has_events_once_of_a_process_that_was_killed_while_it_wrote_them) {
  std::vector<int> calls = {SYS_fsync, SYS_ftruncate};
#ifdef SYS_rename
  calls.push_back(SYS_rename);
#endif
  for (const int call : calls) {
    Program killed([this, call] {
      trace::start(file_, "job");
      { const trace::Span slice("of the killed"); }
      std::thread([] { const trace::Span slice("of the killed"); }).join();
      at_call(call, SECCOMP_RET_KILL_PROCESS, 0, ~0U);
      trace::flush();
      return 0;
    });
    EXPECT_EQ(killed.result().code, 128 + SIGSYS);
    merge_the_rest();
    EXPECT_EQ(of_phase("X").size(), 2U) << "killed in call " << call;
    EXPECT_FALSE(std::filesystem::exists(folder_));
    std::filesystem::remove(file_);
  }
}

TEST_F(Trace, of_a_killed_process_is_finished_by_the_next_one_of_its_job) {
  record_and_die(file_, [] { const trace::Span slice("of the killed"); });
  recorded("job", [] { const trace::Span slice("of the next"); });
  EXPECT_EQ(of_phase("X").size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(Trace, has_no_part_of_a_process_that_lives) {
  Program lives([this] {
    trace::start(file_, "job");
    { const trace::Span slice("of the living"); }
    ::write(STDOUT_FILENO, "\n", 1);
    ::pause();
    return 0;
  });
  lives.read_line();
  recorded("job", [] { const trace::Span slice("of the next"); });
  EXPECT_EQ(of_phase("X").size(), 1U);
  lives.signal(SIGKILL);
  lives.result();
  merge_the_rest();
  EXPECT_EQ(of_phase("X").size(), 2U);
}

/// A full device must not end a process that writes into a mapped file.
TEST_F(Trace, is_kept_in_memory_where_no_file_can_be_made) {
  recorded("job", [] {
    at_call(SYS_fallocate, SECCOMP_RET_ERRNO | ENOSPC, 0, ~0U);
    at_call(SYS_pwrite64, SECCOMP_RET_ERRNO | ENOSPC, 0, ~0U);
    for (int i = 0; i < 1000; ++i) const trace::Span slice("slice");
  });
  EXPECT_EQ(of_phase("X").size(), 1000U);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(Trace, moves_to_memory_when_the_device_gets_full) {
  recorded("job", [] {
    for (int i = 0; i < 10; ++i) const trace::Span slice("slice");
    at_call(SYS_fallocate, SECCOMP_RET_ERRNO | ENOSPC, 0, ~0U);
    at_call(SYS_pwrite64, SECCOMP_RET_ERRNO | ENOSPC, 0, ~0U);
    for (int i = 0; i < 1000; ++i) const trace::Span slice("slice");
  });
  EXPECT_EQ(of_phase("X").size(), 1010U);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

/// Puts are enqueued ahead of the peer's opening: the first one waits.
TEST_F(Trace, says_which_epoch_waits_for_the_peer) {
  ::setenv("SLUICE_TRACE", file_.c_str(), 1);
  Program program([] {
    std::atomic<bool> enqueued{false};
    return sluice::run_threads(2, [&enqueued](sluice::Context& context) {
      const sluice::Memory memory = context.allocate(64);
      if (context.rank() == 0) {
        sluice::HostStream stream;
        auto sender = context.sender(1, 4, memory.slice(0, 16));
        for (int i = 0; i < 3; ++i) sender.put(sluice::Stream::host(stream));
        enqueued.store(true);
        enqueued.notify_all();
        stream.synchronize();
        sender.close();
      } else {
        enqueued.wait(false);
        auto receiver = context.receiver(0, 4, memory.slice(0, 48), {.depth = 3});
        for (int i = 0; i < 3; ++i) receiver.wait(sluice::Stream::program_order());
        receiver.close();
      }
    });
  });
  const auto result = program.result();
  ::unsetenv("SLUICE_TRACE");
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<int> epochs;
  for (const auto& slice : of_phase("X")) {
    if (slice.at("name") == "wait for the peer" && slice.at("pid") == 0) epochs.push_back(slice.at("args").at("epoch"));
  }
  EXPECT_EQ(epochs, std::vector{1});
}

/// Two ranks, one slot: puts wait for their credits.
TEST_F(Trace, shows_the_life_of_puts_of_two_ranks) {
  constexpr std::size_t kPuts = 10;
  ::setenv("SLUICE_TRACE", file_.c_str(), 1);
  Program program([] {
    return sluice::run_threads(2, [](sluice::Context& context) {
      const sluice::Memory memory = context.allocate(64);
      if (context.rank() == 0) {
        sluice::HostStream stream;
        auto sender = context.sender(1, 4, memory.slice(0, 64));
        for (std::size_t i = 0; i < kPuts; ++i) sender.put(sluice::Stream::host(stream));
        stream.synchronize();
        sender.close();
      } else {
        auto receiver = context.receiver(0, 4, memory.slice(0, 64));
        const auto stream = sluice::Stream::program_order();
        for (std::size_t i = 0; i < kPuts; ++i) {
          receiver.wait(stream);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          receiver.release(stream);
        }
        receiver.close();
      }
    });
  });
  const auto result = program.result();
  ::unsetenv("SLUICE_TRACE");
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<std::string, json> ends;
  for (const auto& event : events()) {
    if (event.at("ph") == "f") ends[event.at("id")] = event;
  }
  const json begins = of_phase("s");
  ASSERT_EQ(begins.size(), kPuts);
  ASSERT_EQ(ends.size(), kPuts);
  for (const auto& begin : begins) {
    ASSERT_TRUE(ends.contains(begin.at("id"))) << begin;
    EXPECT_EQ(begin.at("pid"), 0);
    EXPECT_EQ(ends[begin.at("id")].at("pid"), 1);
    EXPECT_LE(begin.at("ts"), ends[begin.at("id")].at("ts"));
  }
  // Some put came to its wait before the release, and left it after that had begun.
  std::vector<double> releases;
  double last_wait_ends = 0;
  for (const auto& slice : of_phase("X")) {
    const auto begin = slice.at("ts").get<double>();
    if (slice.at("name") == "release") releases.push_back(begin);
    if (slice.at("name") == "wait for credit") {
      EXPECT_EQ(slice.at("pid"), 0);
      last_wait_ends = std::max(last_wait_ends, begin + slice.at("dur").get<double>());
    }
  }
  ASSERT_EQ(releases.size(), kPuts);
  EXPECT_GT(last_wait_ends, releases.front());
}

}  // namespace
