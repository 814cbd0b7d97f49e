#pragma once

// The objects of the stand-in, with checked reference counts. A message to a released object, and
// objects that outlive the last device, end the process.

#include "../../../csrc/metal/apple.h"
#include "options.h"

@interface NSObject (Fake)
+ (Class)class;
- (instancetype)autorelease;
// Called before the object's memory is freed; overridden by owners of resources.
- (void)dealloc;
@end

@interface FakeError : NSError {
  NSInteger code_;
  const char* text_;
}
+ (FakeError*)errorWithCode:(NSInteger)code text:(const char*)text;
@end

namespace fake_metal {

// Aborts and names objects of the stand-in's classes that outlive the last device.
void require_no_objects_except(NSObject* device);

}  // namespace fake_metal
