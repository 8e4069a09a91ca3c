"""Families of facts: what is asked of small data, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondguess.experiments.facts.families import FAMILIES
from secondguess.experiments.facts.german_articles import german_articles
from secondguess.experiments.facts.questions import Fact
from secondguess.experiments.facts.run import run_facts
from secondguess.experiments.facts.word_kinds import word_kinds

NOUNS = """lemma,pos,genus,genus 1,genus 2,genus 3,genus 4
Haus,Substantiv,n,,,,
Tisch,Substantiv,m,,,,
Blume,Substantiv,f,,,,
Joghurt,Substantiv,,m,n,,
Band,Substantiv,n,,,,
Band,Substantiv,f,,,,
Berlin,"Substantiv,Toponym",n,,,,
Kuh,Substantiv,f,,,,
Abteilungsleiter,Substantiv,m,,,,
USA,Substantiv,f,,,,
Öffnung,Substantiv,f,,,,
"""

WORDS = """  1 This is a licence, which is indented.
00001001 05 n 02 nuthatch 0 nutcracker 1 001 @ 00000001 n 0000 | a bird
00001002 06 n 01 nutcracker 0 000 | a tool
00001003 20 n 03 Norway_maple 0 fern_ally 0 spleenwort 0 000 | a plant
00001004 27 n 02 corundom 0 corundum 0 000 | a mineral
00001005 09 n 01 idea 0 000 | a thought
00001006 18 n 01 Bach 0 000 | a composer
00001007 18 n 0a a_b 0 c_d 0 e_f 0 g_h 0 i_j 0 k_l 0 m_n 0 o_p 0 q_r 0 gaffer 0 000 | ten words
"""


def test_nouns_have_one_gender_and_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "german_nouns").mkdir()
    (tmp_path / "german_nouns" / "nouns.csv").write_text(NOUNS, encoding="utf-8")
    asked = "What is the article of the German noun {}?"
    expected = [
        Fact(asked.format(noun), article)
        for noun, article in (("Blume", "die"), ("Haus", "das"), ("Tisch", "der"))
    ]
    assert german_articles(tmp_path) == expected
    assert german_articles(tmp_path / "german_nouns" / "nouns.csv") == expected


def test_words_have_one_meaning_and_no_synonym_is_asked_too(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(WORDS, encoding="utf-8")
    asked = "What is meant by {}?"
    assert word_kinds(tmp_path) == [
        Fact(asked.format(word), kind)
        for word, kind in (
            ("corundom", "a substance"),
            ("gaffer", "a person"),
            ("nuthatch", "an animal"),
            ("spleenwort", "a plant"),
        )
    ]


@pytest.mark.parametrize("name", ["german-articles", "word-kinds"])
def test_data_that_are_not_there_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected the (file|nouns) of .*(unzip|unpack)"):
        FAMILIES[name].facts(tmp_path)
    monkeypatch.delenv("SECONDGUESS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="pass data_dir or set SECONDGUESS_DATA"):
        run_facts(preset="quick", out=tmp_path, model="none", family=name)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_wordings_of_a_family_have_their_way_back(family) -> None:
    for number in family.templates:
        wordings = family.wordings(number)
        assert len(wordings.templates) == number
        for answer in ("France", "der", "a body part"):
            assert {wordings.meaning(each) for each in wordings.of(answer)} == {answer}


def test_a_family_without_twelve_wordings_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_wordings is 12; this family of facts has"):
        run_facts(preset="quick", out=tmp_path, model="", family="word-kinds", num_wordings=12)
    with pytest.raises(ValueError, match="'rivers' is no family"):
        run_facts(preset="quick", out=tmp_path, model="", family="rivers")
