//! Names of the countries in which providers can be.

use super::Translation;

#[rustfmt::skip]
pub(super) const TRANSLATIONS: &[Translation] = &[
    ("Austria", "Österreich", "Autriche"),
    ("Belgium", "Belgien", "Belgique"),
    ("Bulgaria", "Bulgarien", "Bulgarie"),
    ("Cyprus", "Zypern", "Chypre"),
    ("Czechia", "Tschechien", "Tchéquie"),
    ("Germany", "Deutschland", "Allemagne"),
    ("Denmark", "Dänemark", "Danemark"),
    ("Estonia", "Estland", "Estonie"),
    ("Spain", "Spanien", "Espagne"),
    ("Finland", "Finnland", "Finlande"),
    ("France", "Frankreich", "France"),
    ("Greece", "Griechenland", "Grèce"),
    ("Croatia", "Kroatien", "Croatie"),
    ("Hungary", "Ungarn", "Hongrie"),
    ("Ireland", "Irland", "Irlande"),
    ("Italy", "Italien", "Italie"),
    ("Lithuania", "Litauen", "Lituanie"),
    ("Luxembourg", "Luxemburg", "Luxembourg"),
    ("Latvia", "Lettland", "Lettonie"),
    ("Malta", "Malta", "Malte"),
    ("Netherlands", "Niederlande", "Pays-Bas"),
    ("Poland", "Polen", "Pologne"),
    ("Portugal", "Portugal", "Portugal"),
    ("Romania", "Rumänien", "Roumanie"),
    ("Sweden", "Schweden", "Suède"),
    ("Slovenia", "Slowenien", "Slovénie"),
    ("Slovakia", "Slowakei", "Slovaquie"),
];
