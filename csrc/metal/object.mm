#include "object.h"

#include "apple.h"

namespace forge::metal {

Object::~Object() { [static_cast<id<NSObject>>(pointer_) release]; }

AutoreleasePool::AutoreleasePool() : pool_([[NSAutoreleasePool alloc] init]) {}

AutoreleasePool::~AutoreleasePool() { [static_cast<NSAutoreleasePool*>(pool_) drain]; }

}  // namespace forge::metal
