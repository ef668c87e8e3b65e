//! Mistakes made on purpose on a real device, to see that a memory checker sees them.

use std::{str::FromStr, sync::Arc};

use xlog_cuda::{LaunchDims, kernels};
use xlog_driver::{Arguments, Driver, DriverResult, RawEvent, RawStream};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    /// A kernel writes past the end of an allocation.
    OutOfBounds,
    /// A kernel on one stream uses memory that another stream has freed; nothing orders the two.
    OutOfLife,
    /// None: the same calls, done right.
    Nothing,
    /// None: ordered by the host, which asks until it is told that the device has come that far,
    /// and goes on from there.
    Asked,
    /// None: ordered by the host, which waits for an event.
    Waited,
    /// None: ordered by the host, which waits for the whole stream.
    Drained,
    /// None: ordered by way of a third stream, which waits for the first and is waited for.
    Roundabout,
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "out-of-bounds" => Ok(Self::OutOfBounds),
            "out-of-life" => Ok(Self::OutOfLife),
            "nothing" => Ok(Self::Nothing),
            "asked" => Ok(Self::Asked),
            "waited" => Ok(Self::Waited),
            "drained" => Ok(Self::Drained),
            "roundabout" => Ok(Self::Roundabout),
            _ => Err("a mistake to plant is out-of-bounds or out-of-life; to plant none, but the \
                      same calls, nothing, asked, waited, drained or roundabout"
                .into()),
        }
    }
}

/// Words of the planted blocks.
const WORDS: usize = 1024;

/// Makes the mistake with bare driver calls, and waits for the device.
pub fn plant(driver: &Arc<dyn Driver>, plant: Plant) -> DriverResult<()> {
    let (one, other) = (driver.create_stream()?, driver.create_stream()?);
    let words = if plant == Plant::OutOfBounds { WORDS + 512 } else { WORDS };
    let plain = driver.allocate(WORDS * 4)?;
    fill(driver, plain, words, one)?;
    // SAFETY: a stream of this driver.
    let ordered = unsafe { driver.allocate_on(WORDS * 4, one) }?;
    fill(driver, ordered, WORDS, one)?;
    if let Plant::Nothing | Plant::Roundabout = plant {
        let between = match plant {
            Plant::Roundabout => Some(driver.create_stream()?),
            _ => None,
        };
        follow(driver, one, between, other)?;
        fill(driver, ordered, WORDS, other)?;
        follow(driver, other, between, one)?;
        if let Some(between) = between {
            // SAFETY: a stream of this driver, of no use any more.
            unsafe { driver.destroy_stream(between) }?;
        }
    }
    if let Plant::Asked | Plant::Waited | Plant::Drained = plant {
        let event = driver.create_event()?;
        pass(driver, plant, event, one)?;
        fill(driver, ordered, WORDS, other)?;
        pass(driver, plant, event, other)?;
        // SAFETY: the event has no use any more.
        unsafe { driver.destroy_event(event) }?;
    }
    // SAFETY: memory of this driver, freed on the stream it came from. The mistake, if that is the
    // one, is that the other stream's use comes after it; the driver keeps the memory mapped.
    unsafe { driver.free_on(ordered, one) }?;
    if plant == Plant::OutOfLife {
        fill(driver, ordered, WORDS, other)?;
    }
    driver.synchronize_device()?;
    // SAFETY: everything on the device is done, and nothing has these any more.
    unsafe {
        driver.free(plain)?;
        driver.destroy_stream(one)?;
        driver.destroy_stream(other)
    }
}

/// Makes a stream follow another, directly or by way of a third.
fn follow(
    driver: &Arc<dyn Driver>,
    first: RawStream,
    between: Option<RawStream>,
    then: RawStream,
) -> DriverResult<()> {
    let mut from = first;
    for to in between.into_iter().chain([then]) {
        let event = driver.create_event()?;
        // SAFETY: the streams and the event are this driver's; a wait that is queued outlives its
        // event.
        unsafe {
            driver.record_event(event, from)?;
            driver.wait_event(to, event)?;
            driver.destroy_event(event)?;
        }
        from = to;
    }
    Ok(())
}

/// Goes on only once the device has come as far as the stream's end is now.
fn pass(
    driver: &Arc<dyn Driver>,
    how: Plant,
    event: RawEvent,
    stream: RawStream,
) -> DriverResult<()> {
    // SAFETY: event and stream are this driver's.
    unsafe {
        driver.record_event(event, stream)?;
        match how {
            Plant::Waited => return driver.synchronize_event(event),
            Plant::Drained => return driver.synchronize_stream(stream),
            _ => {}
        }
        while !driver.event_done(event)? {
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn fill(driver: &Arc<dyn Driver>, to: u64, words: usize, stream: RawStream) -> DriverResult<()> {
    let function = driver.load_kernel(&kernels::FILL_U32)?;
    let mut arguments = Arguments::new();
    arguments.push_pointer(to);
    arguments.push_value(7u32);
    arguments.push_value(words as u64);
    // SAFETY: the arguments are the kernel's; where they do not fit the memory, that is the mistake
    // a checker is to see.
    unsafe { driver.launch(function, LaunchDims::linear(4, 256), &arguments, stream) }
}
