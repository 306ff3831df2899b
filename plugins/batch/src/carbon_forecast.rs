//! Carbon-aware start of a batch: parses forecasts of the carbon intensity of power grids, and plans the start for the
//! hour in which the grids of the batch's providers have the lowest mean intensity, by the forecast or by typical values.

use crate::intensity_history::{IntensityRecord, IntensitySource};
use penstock_core::calendar;
use std::collections::BTreeMap;

/// Number of seconds in an hour.
const HOUR_SECONDS: u64 = 3_600;

/// Hourly emissions of a grid zone, in grams of CO2e per kWh. A forecast takes precedence over the usual value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridZone {
    /// Usual emissions in grams of CO2e per kWh, by UTC hour of the day; `None` if unknown.
    pub typical: Option<[u32; 24]>,
    /// Forecast emissions in grams of CO2e per kWh; the key counts hours since 1970.
    pub forecast: BTreeMap<u64, u32>,
}

impl GridZone {
    /// Returns the grams of CO2e per kWh in this hour, counted since 1970; `None` if unknown.
    #[must_use]
    pub fn grams_per_kwh_at(&self, hour: u64) -> Option<u32> {
        self.intensity_at(hour).map(|intensity| intensity.grams)
    }

    /// Returns the intensity in this hour, counted since 1970, and its data source; `None` if unknown.
    #[must_use]
    pub fn intensity_at(&self, hour: u64) -> Option<IntensityRecord> {
        let of = |source| move |grams: &u32| IntensityRecord { grams: *grams, source };
        let usual = || self.typical.as_ref()?.get((hour % 24) as usize).map(of(IntensitySource::Typical));
        self.forecast.get(&hour).map(of(IntensitySource::Forecast)).or_else(usual)
    }
}

/// Planned start of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPlan {
    /// Start time, Unix seconds: `now`, or the start of a later hour.
    pub start: u64,
    /// Mean emissions in milligrams of CO2e per kWh: for the planned start, and for a start now.
    pub milligrams_per_kwh: (u64, u64),
}

/// Plans the start of work that lasts `takes` seconds: at `now` or at a later full hour until `latest`, Unix seconds.
/// The provider is not known in advance, so the mean over all `zones` counts. Returns the start with the lowest mean
/// emissions, the earliest if several are equal; `now` if that start saves less than `saving` thousandths; `None` if
/// the emissions of work that starts at `now` are unknown.
#[must_use]
pub fn plan_start(zones: &[&GridZone], now: u64, latest: u64, takes: u64, saving: u32) -> Option<StartPlan> {
    let takes = takes.max(1);
    let at_once = mean_milligrams(zones, now, takes)?;
    let mut best = (at_once, now);
    let mut start = (now / HOUR_SECONDS + 1) * HOUR_SECONDS;
    while start <= latest {
        if let Some(grams) = mean_milligrams(zones, start, takes)
            && grams < best.0
        {
            best = (grams, start);
        }
        start += HOUR_SECONDS;
    }
    let worth = u128::from(best.0) * 1_000 <= u128::from(at_once) * u128::from(1_000 - saving.min(1_000));
    let (grams, start) = if worth { best } else { (at_once, now) };
    Some(StartPlan { start, milligrams_per_kwh: (grams, at_once) })
}

/// Returns the mean emissions over the zones and the hours of the work, in milligrams of CO2e per kWh; `None` if a
/// value is unknown.
fn mean_milligrams(zones: &[&GridZone], start: u64, takes: u64) -> Option<u64> {
    let (mut sum, mut at) = (0u128, start);
    let end = start.checked_add(takes)?;
    while at < end {
        let hour = at / HOUR_SECONDS;
        let until = ((hour + 1) * HOUR_SECONDS).min(end);
        for zone in zones {
            sum += u128::from(zone.grams_per_kwh_at(hour)?) * u128::from(until - at);
        }
        at = until;
    }
    let whole = u128::from(takes) * zones.len() as u128;
    u64::try_from((sum * 1_000).checked_div(whole)?).ok()
}

/// Forecast in grams per kWh, by zone and by hour since 1970.
pub type ZoneForecasts = BTreeMap<String, BTreeMap<u64, u32>>;

/// Maximum carbon intensity in grams of CO2e per kWh; no grid emits more.
const MAX_GRAMS: u32 = 5_000;

/// Parses a forecast with lines `place,hour,grams`, such as `FR,2026-11-22T14:00Z,31`. An hour may have an offset from
/// UTC, such as `2026-11-22T16:00+02:00`; decimal grams are rounded. A byte order mark, empty lines, lines that begin with
/// `#` and the header line `place,hour,g_per_kwh` are skipped.
///
/// # Errors
/// Returns the number of the invalid line, from 1, and the expected format.
pub fn parse_forecast(text: &str) -> Result<ZoneForecasts, (usize, &'static str)> {
    let mut forecasts = ZoneForecasts::new();
    let mut first = true;
    for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let named = std::mem::take(&mut first) && line.eq_ignore_ascii_case("place,hour,g_per_kwh");
        if named {
            continue;
        }
        let mut cells = line.split(',').map(str::trim);
        let (Some(zone), Some(hour), Some(grams), None) =
            (cells.next(), cells.next(), cells.next(), cells.next())
        else {
            return Err((index + 1, "expected place,hour,grams"));
        };
        let hour = parse_hour(hour).ok_or((index + 1, "expected an hour such as 2026-11-22T14:00Z"))?;
        let grams = parse_grams(grams).ok_or((index + 1, "expected grams of CO2e per kWh, 0 to 5000"))?;
        forecasts.entry(zone.to_owned()).or_default().insert(hour, grams);
    }
    Ok(forecasts)
}

/// Parses a decimal number of grams and rounds it to whole grams, halves up; `None` if it is no number without sign and
/// exponent, or above [`MAX_GRAMS`].
fn parse_grams(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let has_only_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !has_only_digits(whole) || !has_only_digits(fraction) {
        return None;
    }
    let rounds_up = fraction.as_bytes().first().is_some_and(|digit| *digit >= b'5');
    let grams = whole.parse::<u32>().ok()?.checked_add(u32::from(rounds_up))?;
    Some(grams).filter(|grams| *grams <= MAX_GRAMS)
}

/// Parses `2026-11-22T14:00Z`, `2026-11-22T14:00:00Z` or `2026-11-22T16:00+02:00` to the hour since 1970; `None` if the
/// time is invalid or not a full hour in UTC.
fn parse_hour(text: &str) -> Option<u64> {
    calendar::parse_rfc3339(text)
        .filter(|unix| unix.is_multiple_of(HOUR_SECONDS))
        .map(|unix| unix / HOUR_SECONDS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    /// Returns a zone with high carbon intensity by day and a low one from two to five at night.
    fn night() -> GridZone {
        let mut usual = [300; 24];
        usual[2] = 60;
        usual[3] = 50;
        usual[4] = 60;
        GridZone { typical: Some(usual), forecast: BTreeMap::new() }
    }

    const EVENING: u64 = 20_000 * 86_400 + 20 * HOUR_SECONDS + 600;

    #[test]
    fn work_waits_for_the_clean_hours_if_it_may() {
        let zone = night();
        let day_later = EVENING + 86_400;
        let plan = plan_start(&[&zone], EVENING, day_later, HOUR_SECONDS, 100).unwrap();
        assert_eq!(plan.start, 20_001 * 86_400 + 3 * HOUR_SECONDS);
        assert_eq!(plan.milligrams_per_kwh, (50_000, 300_000));
        let long = super::plan_start(&[&zone], EVENING, day_later, 3 * HOUR_SECONDS, 100).unwrap();
        assert_eq!(long.start, 20_001 * 86_400 + 2 * HOUR_SECONDS);
    }

    #[test]
    fn it_begins_at_once_where_waiting_is_no_use() {
        let zone = night();
        assert_eq!(
            plan_start(&[&zone], EVENING, EVENING + HOUR_SECONDS, HOUR_SECONDS, 100).unwrap().start,
            EVENING
        );
        let flat = GridZone { typical: Some([100; 24]), forecast: BTreeMap::new() };
        assert_eq!(plan_start(&[&flat], EVENING, EVENING + 86_400, HOUR_SECONDS, 0).unwrap().start, EVENING);
        let little = GridZone {
            typical: Some(std::array::from_fn(|hour| if hour == 3 { 95 } else { 100 })),
            forecast: BTreeMap::new(),
        };
        assert_eq!(
            plan_start(&[&little], EVENING, EVENING + 86_400, HOUR_SECONDS, 100).unwrap().start,
            EVENING
        );
        assert_ne!(
            plan_start(&[&little], EVENING, EVENING + 86_400, HOUR_SECONDS, 50).unwrap().start,
            EVENING
        );
    }

    #[test]
    fn a_forecast_goes_before_what_is_usual_and_the_unknown_is_not_guessed() {
        let mut zone = night();
        zone.forecast.insert(EVENING / HOUR_SECONDS + 2, 1);
        let plan_of = |zone: &GridZone| plan_start(&[zone], EVENING, EVENING + 86_400, HOUR_SECONDS, 100);
        assert_eq!(plan_of(&zone).unwrap().start, (EVENING / HOUR_SECONDS + 2) * HOUR_SECONDS);
        zone.typical = None;
        assert_eq!(plan_of(&zone), None, "nothing is known of now");
        zone.forecast.insert(EVENING / HOUR_SECONDS, 200);
        zone.forecast.insert(EVENING / HOUR_SECONDS + 1, 200);
        assert_eq!(plan_of(&zone).unwrap().start, (EVENING / HOUR_SECONDS + 2) * HOUR_SECONDS);
        assert_eq!(plan_start(&[], EVENING, EVENING + 86_400, HOUR_SECONDS, 100), None);
    }

    #[test]
    fn several_locations_count_by_their_mean() {
        let (one, mut other) = (night(), night());
        other.typical.as_mut().unwrap()[3] = 900;
        let plan = plan_start(&[&one, &other], EVENING, EVENING + 86_400, HOUR_SECONDS, 100).unwrap();
        assert_eq!(plan.start, 20_001 * 86_400 + 2 * HOUR_SECONDS);
    }

    #[test]
    fn a_forecast_is_read_line_by_line() {
        let text = "place,hour,g_per_kwh\n# made today\n\nFR,2024-02-29T14:00Z,31\nFR, 2024-02-29T15:00:00Z ,30\nDE,1970-01-01T00:00Z,400\n";
        let zones = parse_forecast(text).unwrap();
        assert_eq!(zones["FR"][&(1_709_215_200 / HOUR_SECONDS)], 31);
        assert_eq!(zones["FR"].len(), 2);
        assert_eq!(zones["DE"][&0], 400);
    }

    #[test]
    fn a_forecast_may_have_a_byte_order_mark_offsets_and_decimals() {
        let text = "\u{feff}place,hour,g_per_kwh\r\nFR,2024-02-29T16:00+02:00,31.4\r\nFR,2024-02-29T20:30:00+05:30,31.5\r\n\
                    FR,2024-02-29T12:00-04:00,0.49\r\nFR,1970-01-01T01:00+01:00,5000.499999999999999999999\r\n";
        let zones = parse_forecast(text).unwrap();
        let afternoon = 1_709_215_200 / HOUR_SECONDS;
        let expected = [(0, 5_000), (afternoon, 31), (afternoon + 1, 32), (afternoon + 2, 0)];
        assert_eq!(zones["FR"], BTreeMap::from(expected));
        assert_eq!(parse_forecast("\u{feff}FR,2024-02-29T14:00Z,31").unwrap().len(), 1, "without a header");
    }

    #[test]
    fn a_mistake_is_reported_with_its_line_number() {
        for (text, line) in [
            ("FR,2024-02-29T14:00Z", 1),
            ("\nFR,2024-02-29T14:30Z,31", 2),
            ("FR,2024-13-29T14:00Z,31", 1),
            ("FR,2024-02-29T24:00Z,31", 1),
            ("FR,29.2.2024,31", 1),
            ("FR,2024-02-29T14:00Z,31.", 1),
            ("FR,2024-02-29T14:00Z,.5", 1),
            ("FR,2024-02-29T14:00Z,3.1.5", 1),
            ("FR,2024-02-29T14:00Z,-0.4", 1),
            ("FR,2024-02-29T14:00Z,+31", 1),
            ("FR,2024-02-29T14:00Z,3e1", 1),
            ("FR,2024-02-29T14:00Z,NaN", 1),
            ("FR,2024-02-29T14:00Z,", 1),
            ("FR,2024-02-29T14:00Z,5000.5", 1),
            ("FR,2024-02-29T14:00Z,6000", 1),
            ("FR,2024-02-29T14:00Z,99999999999999999999", 1),
            ("\nFR,2024-02-29T14:00+05:30,31", 2),
            ("FR,2024-02-29T14:00Z,1,2", 1),
        ] {
            assert_eq!(parse_forecast(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn a_nonexistent_hour_is_reported_with_its_line_and_the_expected_form() {
        for hour in [
            "2026-02-31T14:00Z",
            "2026-02-29T14:00Z",
            "2100-02-29T14:00Z",
            "2026-04-31T14:00Z",
            "2026-11-22T24:00Z",
            "2026-11-22T14:00:60Z",
            "2026-11-22T14:00:01Z",
            "1969-12-31T14:00Z",
            "1970-01-01T00:00+01:00",
            "2026-11-22T14:00",
            "2026-11-22T14:00+2:00",
            "2026-11-22T14:00+24:00",
            "2026-11-22T14:00+02:60",
            "2026-11-22T14:00Z+02:00",
            "2026-11-22T14:00+é:00",
        ] {
            let text = format!("place,hour,g_per_kwh\nFR,2028-02-29T14:00Z,31\nFR,{hour},31\n");
            let expected = Err((3, "expected an hour such as 2026-11-22T14:00Z"));
            assert_eq!(parse_forecast(&text), expected, "{hour}");
        }
    }
}
