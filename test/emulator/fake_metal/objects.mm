#include "objects.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// From GCC's Objective-C runtime, whose header defines BOOL differently.
extern "C" size_t class_getInstanceSize(Class type);
extern "C" const char* class_getName(Class type);
extern "C" Class objc_getClass(const char* name);

namespace {

// Precedes every object in memory.
struct alignas(16) Header {
  std::atomic<int> references;
};

Header& header_of(id object) { return reinterpret_cast<Header*>(object)[-1]; }

Class& class_of(id object) { return *reinterpret_cast<Class*>(object); }

std::mutex live_mutex;
std::map<std::string, int>& live_objects() {
  static std::map<std::string, int> counts;
  return counts;
}

void count(Class type, int change) {
  const std::lock_guard lock(live_mutex);
  live_objects()[class_getName(type)] += change;
}

thread_local std::vector<std::vector<id>> pools;

}  // namespace

// The class of released objects: any message ends the process.
__attribute__((objc_root_class))
@interface ReleasedObject {
  Class isa;
}
@end

@implementation ReleasedObject

- (id)retain {
  fake_metal::misuse("an object is retained after its release");
}

- (oneway void)release {
  fake_metal::misuse("an object is released after its release");
}

// Called by GCC's runtime for every other message.
- (void*)forward:(SEL)selector :(void*)arguments {
  static_cast<void>(selector);
  static_cast<void>(arguments);
  fake_metal::misuse("an object gets a message after its release");
}

@end

@implementation NSObject

+ (instancetype)alloc {
  const size_t bytes = sizeof(Header) + class_getInstanceSize(static_cast<Class>(self));
  auto* header = static_cast<Header*>(std::calloc(1, bytes));
  header->references = 1;
  id object = reinterpret_cast<id>(header + 1);
  class_of(object) = static_cast<Class>(self);
  count(static_cast<Class>(self), 1);
  return object;
}

+ (Class)class {
  return static_cast<Class>(self);
}

- (instancetype)init {
  return self;
}

- (instancetype)retain {
  ++header_of(self).references;
  return self;
}

- (oneway void)release {
  if (--header_of(self).references > 0) return;
  const Class type = class_of(self);
  [self dealloc];
  count(type, -1);
  // The memory is never reused, so that later uses of the object are detected.
  class_of(self) = objc_getClass("ReleasedObject");
}

- (instancetype)autorelease {
  if (pools.empty()) {
    fake_metal::misuse("an object of %s is autoreleased without a pool",
                       class_getName(class_of(self)));
  }
  pools.back().push_back(self);
  return self;
}

- (void)dealloc {
}

@end

@implementation NSAutoreleasePool

- (instancetype)init {
  pools.emplace_back();
  return self;
}

- (void)drain {
  const std::vector<id> objects = std::move(pools.back());
  pools.pop_back();
  for (id object : objects) [static_cast<NSObject*>(object) release];
  [self release];
}

@end

@interface FakeString : NSString {
 @public
  char* text_;
}
@end

@implementation NSString

+ (instancetype)stringWithUTF8String:(const char*)text {
  FakeString* string = [[FakeString alloc] init];
  string->text_ = strdup(text);
  return [string autorelease];
}

- (const char*)UTF8String {
  return "";
}

@end

@implementation FakeString

- (const char*)UTF8String {
  return text_;
}

- (void)dealloc {
  std::free(text_);
  [super dealloc];
}

@end

@implementation NSError

- (NSInteger)code {
  return 0;
}

- (NSString*)localizedDescription {
  return [NSString stringWithUTF8String:""];
}

@end

@implementation FakeError

+ (FakeError*)errorWithCode:(NSInteger)code text:(const char*)text {
  FakeError* error = [[FakeError alloc] init];
  error->code_ = code;
  error->text_ = text;
  return static_cast<FakeError*>([error autorelease]);
}

- (NSInteger)code {
  return code_;
}

- (NSString*)localizedDescription {
  return [NSString stringWithUTF8String:text_];
}

@end

namespace fake_metal {

void require_no_objects_except(NSObject* device) {
  const std::lock_guard lock(live_mutex);
  const std::string last = class_getName(class_of(device));
  for (const auto& [name, alive] : live_objects()) {
    // Strings and errors live until the pool of their thread ends.
    const bool is_passing = name == "FakeString" || name == "FakeError";
    if (is_passing || alive <= (name == last) || !name.starts_with("Fake")) continue;
    misuse("%d objects of %s are left", alive, name.c_str());
  }
}

}  // namespace fake_metal
