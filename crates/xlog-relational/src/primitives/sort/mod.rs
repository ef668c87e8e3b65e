//! Stable radix sorts of keys, and of keys with values.
//!
//! What fits a block is one launch. More is a launch that counts every digit, one that turns counts
//! into places, and a sweep for each digit of eight bits that moves every key once; sweeps look
//! back at earlier tiles through words that were zeroed before. The host device, whose caches are
//! worth more than that, takes all digits in one launch. Nothing waits for the device.

mod host;
mod kernels;
#[cfg(test)]
mod tests;
mod whole;

use std::ops::Range;

use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceError, ResourceResult, StreamId},
    launch::{DeviceElement, LaunchBuilder},
    memory::{SliceView, TrackedCudaSlice},
};
use xlog_driver::DeviceKind;

use self::{
    kernels::{KeyKernels, STARTS, SweepKernels},
    whole::room_words,
};
use super::{
    order::{Order, Ordered},
    rows::{checked_rows, room},
};
use crate::Engine;

/// Bits of one digit.
const DIGIT: u32 = 8;
/// Values of one digit.
const DIGITS: usize = 1 << DIGIT;
/// Rows that one block sorts.
const TILE: usize = 2048;
/// Look-back words of all sweeps are zeroed at once up to this many bytes: a fill less for each.
const ZEROED_AT_ONCE: usize = 64 << 20;

/// A type that can be sorted by.
pub trait SortKey: Ordered {
    /// The kernels for it.
    #[doc(hidden)]
    const KERNELS: &'static KeyKernels;
}

/// A type that can be carried along by a sort.
pub trait SortValue: DeviceElement + sealed::Sealed {
    /// The kernels for it, among those for a key.
    #[doc(hidden)]
    fn kernels(key: &'static KeyKernels) -> &'static SweepKernels;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

macro_rules! sort_keys {
    ($($key:ty => $kernels:ident),*) => {
        $(impl SortKey for $key {
            const KERNELS: &'static KeyKernels = &kernels::$kernels;
        })*
    };
}

sort_keys!(
    u32 => KEYS_U32, i32 => KEYS_I32, f32 => KEYS_F32,
    u64 => KEYS_U64, i64 => KEYS_I64, f64 => KEYS_F64
);

impl SortValue for u32 {
    fn kernels(key: &'static KeyKernels) -> &'static SweepKernels {
        &key.pairs_32
    }
}

impl SortValue for u64 {
    fn kernels(key: &'static KeyKernels) -> &'static SweepKernels {
        &key.pairs_64
    }
}

/// By what a sort goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortBy {
    /// The bits that count, of the key after the change that orders its type; the others are
    /// ignored. Keys that are known to be small need fewer sweeps.
    pub bits: Range<u32>,
    /// Whether the greatest key comes first. Equal keys stay in their order either way.
    pub descending: bool,
}

impl SortBy {
    /// All bits of `K`, the smallest key first.
    #[must_use]
    pub fn ascending<K: SortKey>() -> Self {
        Self { bits: 0..8 * size_of::<K>() as u32, descending: false }
    }

    /// All bits of `K`, the greatest key first.
    #[must_use]
    pub fn descending<K: SortKey>() -> Self {
        Self { descending: true, ..Self::ascending::<K>() }
    }
}

/// The first `len` of `keys`, sorted, in memory of their own (with room for one key at least).
///
/// Floats are in the order of [`f32::total_cmp`]. Takes `len` below 2^32, and one temporary as
/// large as the result.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
/// use xlog_relational::{Engine, primitives::{SortBy, sort_keys}};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let mut keys = engine.manager().alloc::<f32>(3)?;
/// keys.upload(&[2.5, f32::NEG_INFINITY, -0.0])?;
/// let by = SortBy::descending::<f32>();
/// let sorted = sort_keys(&engine, StreamId::DEFAULT, &keys, 3, &by)?;
/// assert_eq!(sorted.download()?, [2.5, -0.0, f32::NEG_INFINITY]);
/// # Ok::<(), ResourceError>(())
/// ```
#[track_caller]
pub fn sort_keys<K: SortKey>(
    engine: &Engine,
    stream: StreamId,
    keys: &TrackedCudaSlice<K>,
    len: u64,
    by: &SortBy,
) -> ResourceResult<TrackedCudaSlice<K>> {
    let kernels = (K::KERNELS, &K::KERNELS.keys);
    let order = Order::of::<K>(by.descending);
    Ok(sort::<K, u32>(engine, stream, kernels, keys, None, len, &by.bits, order)?.0)
}

/// The first `len` of `keys` and of `values`, sorted by the keys, in memory of their own.
///
/// Otherwise as [`sort_keys`]; there are two temporaries, one for the keys and one for the values.
#[track_caller]
pub fn sort_pairs<K: SortKey, V: SortValue>(
    engine: &Engine,
    stream: StreamId,
    keys: &TrackedCudaSlice<K>,
    values: &TrackedCudaSlice<V>,
    len: u64,
    by: &SortBy,
) -> ResourceResult<(TrackedCudaSlice<K>, TrackedCudaSlice<V>)> {
    let kernels = (K::KERNELS, V::kernels(K::KERNELS));
    let order = Order::of::<K>(by.descending);
    both(sort(engine, stream, kernels, keys, Some(values), len, &by.bits, order)?)
}

/// As [`sort_keys`] by all bits, for memory that is typed by width alone: `order` says what the
/// bits mean.
#[track_caller]
pub(crate) fn sort_bits<B: SortKey<Bits = B>>(
    engine: &Engine,
    stream: StreamId,
    keys: &TrackedCudaSlice<B>,
    len: u64,
    order: Order<B>,
) -> ResourceResult<TrackedCudaSlice<B>> {
    let (kernels, bits) = ((B::KERNELS, &B::KERNELS.keys), 0..8 * size_of::<B>() as u32);
    Ok(sort::<B, u32>(engine, stream, kernels, keys, None, len, &bits, order)?.0)
}

/// As [`sort_pairs`], for memory that is typed by width alone: `order` says what the bits mean, and
/// `bits` which of them count after that change.
#[track_caller]
pub(crate) fn sort_bit_pairs<B: SortKey<Bits = B>, V: SortValue>(
    engine: &Engine,
    stream: StreamId,
    keys: &TrackedCudaSlice<B>,
    values: &TrackedCudaSlice<V>,
    len: u64,
    bits: &Range<u32>,
    order: Order<B>,
) -> ResourceResult<(TrackedCudaSlice<B>, TrackedCudaSlice<V>)> {
    let kernels = (B::KERNELS, V::kernels(B::KERNELS));
    both(sort(engine, stream, kernels, keys, Some(values), len, bits, order)?)
}

fn both<K, V>(
    (keys, values): Owned<K, V>,
) -> ResourceResult<(TrackedCudaSlice<K>, TrackedCudaSlice<V>)> {
    values.map(|values| (keys, values)).ok_or_else(|| "a sort of pairs lost its values".into())
}

/// Keys, and the values that go with them.
struct Rows<'r, K, V> {
    keys: &'r TrackedCudaSlice<K>,
    values: Option<&'r TrackedCudaSlice<V>>,
}

/// The same as memory of one's own.
type Owned<K, V> = (TrackedCudaSlice<K>, Option<TrackedCudaSlice<V>>);

#[allow(clippy::too_many_arguments)] // what the public forms take, and what they know
#[track_caller]
fn sort<K: SortKey, V: DeviceElement>(
    engine: &Engine,
    stream: StreamId,
    (key, kernels): (&'static KeyKernels, &'static SweepKernels),
    keys: &TrackedCudaSlice<K>,
    values: Option<&TrackedCudaSlice<V>>,
    len: u64,
    bits: &Range<u32>,
    order: Order<K::Bits>,
) -> ResourceResult<Owned<K, V>> {
    let len = checked_rows(len, keys.len(), "the keys to sort")?;
    if let Some(values) = values {
        checked_rows(len as u64, values.len(), "the values to sort along")?;
    }
    let width = 8 * size_of::<K>() as u32;
    let bits = bits.clone();
    if bits.start > bits.end || bits.end > width {
        return Err(ResourceError::StreamMisuse(format!(
            "a sort by bits {}..{} of keys that have {width}; name bits in order, up to {width}",
            bits.start, bits.end
        )));
    }
    // No bit is no bit, wherever it is not: a shift by a key's whole width would be undefined.
    let bits = if bits.is_empty() { 0..0 } else { bits };
    let fresh = || -> ResourceResult<Owned<K, V>> {
        let keys = engine.alloc(room(len), stream, "sorted keys")?;
        let values =
            values.map(|_| engine.alloc(room(len), stream, "sorted values")).transpose()?;
        Ok((keys, values))
    };
    let input = Rows { keys, values };
    let result = fresh()?;
    match len {
        0 => {}
        1..=TILE => sort_tile(engine, stream, kernels, &input, &result, len, &bits, order)?,
        _ => {
            let kind = engine.runtime().device().info().kind;
            let steps = Steps::on(kind, kernels, bits.len());
            let job = Job { engine, stream, key, kernels, len, bits, order, steps };
            job.run(input, &result, fresh)?;
        }
    }
    Ok(result)
}

#[allow(clippy::too_many_arguments)] // a launch's arguments
#[track_caller]
fn sort_tile<K: SortKey, V: DeviceElement>(
    engine: &Engine,
    stream: StreamId,
    kernels: &'static SweepKernels,
    input: &Rows<'_, K, V>,
    result: &Owned<K, V>,
    len: usize,
    bits: &Range<u32>,
    order: Order<K::Bits>,
) -> ResourceResult<()> {
    let mut launch = engine.launch(&kernels.tile, stream)?;
    launch.input(input.keys).output(&result.0);
    carry(&mut launch, input.values, result.1.as_ref());
    launch.value(len as u64).value(bits.start).value(bits.end);
    launch.value(order.magnitude).value(order.flip).launch(LaunchDims::linear(1, 256))
}

/// The arguments for values, if there are any.
fn carry<V: DeviceElement>(
    launch: &mut LaunchBuilder<'_>,
    from: Option<&TrackedCudaSlice<V>>,
    to: Option<&TrackedCudaSlice<V>>,
) {
    if let (Some(from), Some(to)) = (from, to) {
        launch.input(from).output(to);
    }
}

/// A sort that takes a grid.
struct Job<'e, K: SortKey> {
    engine: &'e Engine,
    stream: StreamId,
    key: &'static KeyKernels,
    kernels: &'static SweepKernels,
    len: usize,
    bits: Range<u32>,
    order: Order<K::Bits>,
    steps: Steps,
}

/// What a sort launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// A sweep for each digit and each portion of this many rows, which look-back words can count:
    /// they stop at 2^30. A block takes a tile of it.
    Sweeps { portion_rows: usize, tile_rows: usize },
    /// One for all digits.
    AtOnce,
}

impl Steps {
    /// What is best on a device for a sort by `bits` bits. The host takes small portions where it
    /// sweeps, so that its tests see several of them.
    fn on(kind: DeviceKind, kernels: &SweepKernels, bits: usize) -> Self {
        let tile_rows = kernels.tile_rows;
        match kind {
            DeviceKind::Host if bits > DIGIT as usize => Self::AtOnce,
            DeviceKind::Host => Self::Sweeps { portion_rows: 1 << 20, tile_rows: 1 << 16 },
            DeviceKind::Cuda => {
                Self::Sweeps { portion_rows: ((1 << 30) - 1) / tile_rows * tile_rows, tile_rows }
            }
        }
    }
}

/// One launch of a sweep.
struct Sweep<'w, B> {
    look_back: SliceView<'w, u32>,
    counter: SliceView<'w, u32>,
    bins: SliceView<'w, u32>,
    bins_left: SliceView<'w, u32>,
    rows: Range<usize>,
    bits: Range<u32>,
    /// What orders the keys as they are read, and what is undone as they are written.
    orders: (Order<B>, Order<B>),
    blocks: u32,
}

/// Where things lie in the words that sweeps share: in this order, one behind the other.
struct Layout {
    sweeps: usize,
    portions: usize,
    /// Look-back words of one sweep over one portion.
    look_back: usize,
    /// Whether each sweep has look-back words of its own.
    zeroed_at_once: bool,
}

impl Layout {
    /// Counts or places of the digits of one sweep over one portion. There is a row of them more
    /// than there are portions: what the last one leaves.
    fn bins(&self, sweep: usize, portion: usize) -> Range<usize> {
        let start = (portion * self.sweeps + sweep) * DIGITS;
        start..start + DIGITS
    }

    fn counter(&self, sweep: usize, portion: usize) -> Range<usize> {
        let start = (self.portions + 1) * self.sweeps * DIGITS + portion * self.sweeps + sweep;
        start..start + 1
    }

    fn look_back(&self, sweep: usize, portion: usize) -> Range<usize> {
        let first = self.counter(self.sweeps - 1, self.portions - 1).end;
        let one = if self.zeroed_at_once { portion * self.sweeps + sweep } else { 0 };
        let start = first + one * self.look_back;
        start..start + self.look_back
    }

    fn words(&self) -> usize {
        self.look_back(self.sweeps - 1, self.portions - 1).end
    }
}

impl<K: SortKey> Job<'_, K> {
    #[track_caller]
    fn run<V: DeviceElement>(
        &self,
        input: Rows<'_, K, V>,
        result: &Owned<K, V>,
        fresh: impl Fn() -> ResourceResult<Owned<K, V>>,
    ) -> ResourceResult<()> {
        let Steps::Sweeps { portion_rows, tile_rows } = self.steps else {
            return self.at_once(&input, result);
        };
        // Without a bit to sort by, one sweep by no bits copies.
        let sweeps = (self.bits.len() as u32).div_ceil(DIGIT).max(1) as usize;
        let portions = self.len.div_ceil(portion_rows);
        let tiles = self.len.min(portion_rows).div_ceil(tile_rows);
        let look_back = tiles * DIGITS;
        let zeroed_at_once = look_back * 4 * sweeps * portions <= ZEROED_AT_ONCE;
        let layout = Layout { sweeps, portions, look_back, zeroed_at_once };
        let mut words = self.engine.alloc::<u32>(layout.words(), self.stream, "sort's places")?;
        words.fill_bytes(0, self.stream)?;

        self.count(input.keys, &words, &layout)?;
        let between = if sweeps > 1 { Some(fresh()?) } else { None };
        let mut from = input;
        for sweep in 0..sweeps {
            // The last sweep writes the result, the one before it the temporary, and so on.
            let to = match &between {
                Some(between) if (sweeps - sweep).is_multiple_of(2) => between,
                _ => result,
            };
            for portion in 0..portions {
                if !zeroed_at_once && sweep + portion > 0 {
                    let look_back = words.view(layout.look_back(sweep, portion))?;
                    look_back.fill_bytes(0, self.stream)?;
                }
                let start = portion * portion_rows;
                let rows = start..self.len.min(start + portion_rows);
                let shift = self.bits.start + sweep as u32 * DIGIT;
                // Keys lie in memory as they were before the first sweep and after the last one,
                // and as ordered bits in between.
                let order = |here: bool| if here { self.order } else { Order::default() };
                let launch = Sweep {
                    look_back: words.view(layout.look_back(sweep, portion))?,
                    counter: words.view(layout.counter(sweep, portion))?,
                    bins: words.view(layout.bins(sweep, portion))?,
                    bins_left: words.view(layout.bins(sweep, portion + 1))?,
                    blocks: rows.len().div_ceil(tile_rows) as u32,
                    rows,
                    bits: shift..self.bits.end.min(shift + DIGIT),
                    orders: (order(sweep == 0), order(sweep + 1 == sweeps)),
                };
                self.sweep(launch, &from, to)?;
            }
            from = Rows { keys: &to.0, values: to.1.as_ref() };
        }
        Ok(())
    }

    /// Sorts by all digits in one launch.
    #[track_caller]
    fn at_once<V: DeviceElement>(
        &self,
        input: &Rows<'_, K, V>,
        result: &Owned<K, V>,
    ) -> ResourceResult<()> {
        let value = if input.values.is_some() { size_of::<V>() } else { 0 };
        let room = room_words(self.len, size_of::<K>(), value);
        let room = self.engine.alloc::<u32>(room, self.stream, "sort's room")?;
        // What sweeps hand on to each other: there is no other one.
        let words = self.engine.alloc::<u32>(2 * DIGITS + 1, self.stream, "sort's places")?;
        let launch = Sweep {
            look_back: room.view(0..room.len())?,
            counter: words.view(0..1)?,
            bins: words.view(1..1 + DIGITS)?,
            bins_left: words.view(1 + DIGITS..1 + 2 * DIGITS)?,
            rows: 0..self.len,
            bits: self.bits.clone(),
            orders: (self.order, self.order),
            blocks: 1,
        };
        self.sweep(launch, input, result)
    }

    /// Counts every digit of every key, and turns the counts into places.
    #[track_caller]
    fn count(
        &self,
        keys: &TrackedCudaSlice<K>,
        words: &TrackedCudaSlice<u32>,
        layout: &Layout,
    ) -> ResourceResult<()> {
        let bins = words.view(0..layout.sweeps * DIGITS)?;
        // As many blocks as run at once, by their registers: they stride over the keys.
        let (tile, resident) = (128 * 16, if size_of::<K>() == 4 { 12 } else { 9 });
        let multiprocessors = self.engine.runtime().device().info().multiprocessors.max(1);
        let blocks = (self.len.div_ceil(tile) as u32).min(multiprocessors * resident);
        self.engine
            .launch(&self.key.histogram, self.stream)?
            .input(keys)
            .in_out(&bins)
            .value(self.len as u64)
            .value(self.bits.start)
            .value(self.bits.end)
            .value(self.order.magnitude)
            .value(self.order.flip)
            .launch(LaunchDims::linear(blocks, 128))?;
        self.engine
            .launch(&STARTS, self.stream)?
            .in_out(&bins)
            .value((layout.sweeps * DIGITS) as u64)
            .launch(LaunchDims::linear(layout.sweeps as u32, DIGITS as u32))
    }

    #[track_caller]
    fn sweep<V: DeviceElement>(
        &self,
        sweep: Sweep<'_, K::Bits>,
        from: &Rows<'_, K, V>,
        to: &Owned<K, V>,
    ) -> ResourceResult<()> {
        let Sweep { rows, bits, orders: (first, last), .. } = sweep;
        let plain = first.is_none() && last.is_none();
        let kernel = if plain { &self.kernels.sweep } else { &self.kernels.sweep_ordered };
        let mut launch = self.engine.launch(kernel, self.stream)?;
        launch
            .in_out(&sweep.look_back)
            .in_out(&sweep.counter)
            .input(&sweep.bins)
            .output(&sweep.bins_left)
            .input(&from.keys.view(rows.clone())?)
            .in_out(&to.0);
        if let (Some(from), Some(to)) = (from.values, to.1.as_ref()) {
            launch.input(&from.view(rows.clone())?).in_out(to);
        }
        launch.value(rows.len() as u64).value(self.len as u64);
        launch.value(bits.start).value(bits.len() as u32);
        if !plain {
            launch.value(first.magnitude).value(first.flip).value(last.magnitude).value(last.flip);
        }
        launch.launch(LaunchDims::linear(sweep.blocks, self.kernels.threads))
    }
}
