//! Kernels that a device has loaded, found again without a lock: every launch of an operator asks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use xlog_driver::{KernelDefinition, RawFunction};

/// Places; a power of two, and several times as many as there are kernels.
const PLACES: usize = 1024;

/// Places that are looked at for a kernel. One that finds no room is asked of the driver each time.
const LOOKS: usize = 16;

/// Loaded kernels by the address of their definition, which is a constant's.
pub(crate) struct KnownKernels {
    places: Box<[Place]>,
    adding: Mutex<()>,
}

#[derive(Default)]
struct Place {
    /// 0 for none; written after the function, and never again.
    definition: AtomicUsize,
    function: AtomicU64,
}

impl Default for KnownKernels {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| Place::default()).collect();
        Self { places, adding: Mutex::new(()) }
    }
}

impl KnownKernels {
    fn places_of(&self, definition: &'static KernelDefinition) -> impl Iterator<Item = &Place> {
        let address = std::ptr::from_ref(definition).addr() as u64;
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..LOOKS).map(move |look| &self.places[(first + look) % PLACES])
    }

    /// The kernel's function, if it is known.
    #[inline]
    pub(crate) fn get(&self, definition: &'static KernelDefinition) -> Option<RawFunction> {
        let wanted = std::ptr::from_ref(definition).addr();
        for place in self.places_of(definition) {
            match place.definition.load(Ordering::Acquire) {
                0 => return None,
                found if found == wanted => {
                    return Some(RawFunction(place.function.load(Ordering::Relaxed)));
                }
                _ => {}
            }
        }
        None
    }

    /// Remembers a kernel, if there is room.
    pub(crate) fn add(&self, definition: &'static KernelDefinition, function: RawFunction) {
        let _adding = self.adding.lock();
        if self.get(definition).is_some() {
            return;
        }
        let vacant = |place: &&Place| place.definition.load(Ordering::Relaxed) == 0;
        if let Some(place) = self.places_of(definition).find(vacant) {
            place.function.store(function.0, Ordering::Relaxed);
            place.definition.store(std::ptr::from_ref(definition).addr(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;

    #[test]
    fn kernels_are_found_again_whoever_added_them() {
        let another = || {
            let KernelDefinition { name, module, parameters, host } = kernels::FILL_U32;
            &*Box::leak(Box::new(KernelDefinition { name, module, parameters, host }))
        };
        let definitions: Vec<&'static KernelDefinition> = (0..700).map(|_| another()).collect();
        let known = KnownKernels::default();
        assert_eq!(known.get(definitions[0]), None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (number, definition) in (0..).zip(&definitions) {
                        known.add(definition, RawFunction(number));
                        let found = known.get(definition);
                        assert!(found.is_none_or(|found| found == RawFunction(number)));
                    }
                });
            }
        });
        let found = definitions.iter().filter(|definition| known.get(definition).is_some()).count();
        assert!(found >= 600, "{found} of 700 are known");
        let places = known.places.iter().map(|place| place.definition.load(Ordering::Relaxed));
        assert_eq!(places.filter(|address| *address != 0).count(), found, "each of them once");
    }
}
