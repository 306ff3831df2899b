//! Totals of invoices and credit notes.

use rust_decimal::Decimal;
use std::iter::Sum;

/// Net amount, VAT and their sum in EUR. The exact net amount is rounded once, to cents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvoiceTotals {
    /// Net amount in EUR, rounded to cents.
    pub net: Decimal,
    /// Value-added tax in EUR.
    pub vat: Decimal,
    /// Sum of net amount and VAT, in EUR.
    pub gross: Decimal,
}

impl InvoiceTotals {
    /// Computes the totals of an exact net amount at a VAT rate in percent.
    #[must_use]
    pub fn from_net_amount(exact: Decimal, vat_percent: Decimal) -> Self {
        let cents = |amount: Decimal| {
            let mut cents = amount.round_dp(2);
            cents.rescale(2);
            cents
        };
        let net = cents(exact);
        let vat =
            cents(net.saturating_mul(vat_percent).checked_div(Decimal::ONE_HUNDRED).unwrap_or_default());
        Self { net, vat, gross: net.saturating_add(vat) }
    }

    /// Parses the amounts of a document; `None` if one of them is no decimal number.
    #[must_use]
    pub fn parse(net: &str, vat: &str, gross: &str) -> Option<Self> {
        let amount = |text| Decimal::from_str_exact(text).ok();
        Some(Self { net: amount(net)?, vat: amount(vat)?, gross: amount(gross)? })
    }

    /// Returns what a further document has to state, if the documents together are to state these totals and `earlier`
    /// is the sum of the other documents. So the sum is rounded once, however many documents there are. A document that
    /// credits a net amount never charges VAT, even if documents of an earlier version credited too much of it.
    #[must_use]
    pub fn less(&self, earlier: &Self) -> Self {
        let net = self.net.saturating_sub(earlier.net);
        let vat = self.vat.saturating_sub(earlier.vat);
        let vat = if net < Decimal::ZERO { vat.min(Decimal::ZERO) } else { vat };
        Self { net, vat, gross: net.saturating_add(vat) }
    }

    /// Returns true if the customer gets money back.
    #[must_use]
    pub fn is_credit(&self) -> bool {
        self.net < Decimal::ZERO && self.gross < Decimal::ZERO
    }
}

impl Sum for InvoiceTotals {
    fn sum<I: Iterator<Item = Self>>(documents: I) -> Self {
        documents.fold(Self::default(), |sum, one| Self {
            net: sum.net.saturating_add(one.net),
            vat: sum.vat.saturating_add(one.vat),
            gross: sum.gross.saturating_add(one.gross),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_str_exact(text).unwrap()
    }

    #[test]
    fn the_net_amount_and_the_vat_are_rounded_once() {
        let totals = |exact, percent| InvoiceTotals::from_net_amount(decimal(exact), decimal(percent));
        let expected =
            |net, vat, gross| InvoiceTotals { net: decimal(net), vat: decimal(vat), gross: decimal(gross) };
        assert_eq!(totals("100.005", "19"), expected("100.00", "19.00", "119.00"));
        assert_eq!(totals("100.015", "5.5"), expected("100.02", "5.50", "105.52"));
        assert_eq!(totals("0.00400000", "19"), expected("0.00", "0.00", "0.00"));
        assert_eq!(totals("-1.5", "20"), expected("-1.50", "-0.30", "-1.80"));
        assert_eq!(totals("0", "0").gross.to_string(), "0.00");
        // An amount that is rounded to zero has no sign.
        for tiny in ["-0.004", "-0.00000001"] {
            let InvoiceTotals { net, vat, gross } = totals(tiny, "19");
            assert_eq!([net, vat, gross].map(|amount| amount.to_string()), ["0.00"; 3], "{tiny}");
        }
    }

    #[test]
    fn credit_notes_of_an_invoice_are_rounded_together() {
        // Credit notes that would be issued one by one for these corrections.
        let notes = |corrections: &[&str], percent: &str| {
            let (mut exact, mut notes) = (Decimal::ZERO, Vec::<InvoiceTotals>::new());
            for correction in corrections {
                exact += decimal(correction);
                let earlier = notes.iter().copied().sum();
                let note = InvoiceTotals::from_net_amount(exact, decimal(percent)).less(&earlier);
                notes.extend(note.is_credit().then_some(note));
            }
            notes
        };
        let net = |notes: &[InvoiceTotals]| notes.iter().map(|one| one.net.to_string()).collect::<Vec<_>>();
        // Six charges of 0.00604806 EUR are an invoice of 0.04 EUR. Rounded one by one, the notes were 0.06 EUR.
        let six = notes(&["-0.00604806"; 6], "0");
        assert_eq!(net(&six), ["-0.01"; 4]);
        assert_eq!(six.iter().copied().sum::<InvoiceTotals>().gross, decimal("-0.04"));
        // Rounded one by one, these notes were over 0.00.
        assert_eq!(net(&notes(&["-0.00461073"; 4], "0")), ["-0.01", "-0.01"]);
        // The VAT of ten notes of -0.04 EUR was -0.10 EUR.
        let ten: InvoiceTotals = notes(&["-0.04"; 10], "19").into_iter().sum();
        assert_eq!(ten, InvoiceTotals::from_net_amount(decimal("-0.40"), decimal("19")));
        // An earlier version rounded each note; nothing is charged to make up for it.
        let earlier = InvoiceTotals::parse("-0.05", "-0.01", "-0.06").unwrap();
        assert!(!InvoiceTotals::from_net_amount(decimal("-0.036"), decimal("19")).less(&earlier).is_credit());
        let earlier = InvoiceTotals::parse("-0.40", "-0.10", "-0.50").unwrap();
        let next = InvoiceTotals::from_net_amount(decimal("-0.44"), decimal("19")).less(&earlier);
        assert_eq!((next.net, next.vat, next.gross), (decimal("-0.04"), Decimal::ZERO, decimal("-0.04")));
        assert_eq!(InvoiceTotals::parse("-0.05", "", "-0.06"), None);
    }
}
