(** Proofs of Statements/Ratios.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Ratios.
From LAI Require Import Vectors Gap.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Sums over pairs and layers, compared term by term. *)
Lemma ler_layers (R : realFieldType) n L (F G : 'I_n -> nat -> R) :
  (forall z l, (0 < l < L)%N -> F z l <= G z l) ->
  \sum_z \sum_(1 <= l < L) F z l <= \sum_z \sum_(1 <= l < L) G z l.
Proof.
by move=> h; apply: ler_sum => z _; rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l hl; apply: h.
Qed.
Lemma layers_out (R : comRingType) n L (b : 'I_n -> R) (a : 'I_n -> nat -> R) m :
  \sum_z b z * (\sum_(1 <= l < L) a z l * m l) = \sum_z \sum_(1 <= l < L) a z l * (m l * b z).
Proof. by apply: eq_bigr => z _; rewrite mulr_sumr; apply: eq_bigr => l _; ring. Qed.

Theorem lai_two_sided : Statements.Ratios.lai_two_sided.
Proof.
move=> R d n L V j m M hr _ ha.
have -> : lai L.+1 V j - ghost L.+1 V j
        = \sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * (beta (V z) j L.+1 - beta (V z) j l).
  rewrite -opprB ghost_lai -sumrN; apply: eq_bigr => z _.
  by rewrite -sumrN; apply: eq_bigr => l _; rewrite -mulrN opprB.
rewrite !layers_out.
apply/andP; split; apply: ler_layers => z l hl; apply: ler_wpmul2l; rewrite ?ha //;
  case/andP: (hr z l hl) => h1 h2.
  by rewrite mulrBl mul1r ler_add2l ler_opp2.
by rewrite mulrBl mul1r ler_add2l ler_opp2.
Qed.

Section Range.
Variables (R : realFieldType) (d : nat -> nat) (n L : nat) (V : 'I_n -> trace R d) (j : trace R d).
Hypothesis a0 : forall z l, (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l.
Hypothesis b0 : forall z l, (0 < l <= L.+1)%N -> 0 <= beta (V z) j l <= beta (V z) j L.+1.

Lemma term_ge0 z l : (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l * beta (V z) j l.
Proof. by move=> hl; apply: mulr_ge0; [apply: a0|case/andP: (b0 z hl)]. Qed.
Lemma lli_le_ghost z : alpha (V z) j L.+1 * beta (V z) j L.+1
  <= \sum_(1 <= l < L.+2) alpha (V z) j l * beta (V z) j l.
Proof.
rewrite big_nat_recr //= ler_addr big_nat; apply: sumr_ge0 => l /andP [l0 lL].
by apply: term_ge0; rewrite l0 ltnW.
Qed.
Lemma ghost_le_lai : ghost L.+1 V j <= lai L.+1 V j.
Proof.
rewrite /ghost /lai; under [X in _ <= X]eq_bigr do rewrite mulr_suml.
by apply: ler_layers => z l hl; apply: ler_wpmul2l; [apply: a0|case/andP: (b0 z hl)].
Qed.
Lemma lai_ge0 : 0 <= lai L.+1 V j.
Proof.
by apply: le_trans ghost_le_lai; apply: sumr_ge0 => z _; rewrite big_nat; apply: sumr_ge0 => l;
  apply: term_ge0.
Qed.
Lemma share_le_ghost m : (forall z, m * (\sum_(1 <= l < L.+2) alpha (V z) j l) <= alpha (V z) j L.+1) ->
  m * lai L.+1 V j <= ghost L.+1 V j.
Proof.
move=> hm; rewrite mulr_sumr; apply: ler_sum => z _; apply: le_trans (lli_le_ghost z); rewrite mulrA.
by apply: ler_wpmul2r => //; case/andP: (b0 z (ltnSn L : (0 < L.+1 <= L.+1)%N)).
Qed.
End Range.

Theorem relative_below_one : Statements.Ratios.relative_below_one.
Proof.
move=> R d n L V j s a0 b0 hs.
have h1 := share_le_ghost a0 b0 hs; have h2 := ghost_le_lai a0 b0.
rewrite influence_gap distrC normrN (ger0_norm (lai_ge0 a0 b0)) ger0_norm ?subr_ge0 //.
by rewrite mulrBl mul1r ler_add2l ler_opp2.
Qed.
