(** Proofs of Statements/Selection.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Selection.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma negbT_le (R : realDomainType) (x : R) : (0 < x) = false -> x <= 0.
Proof. by move=> h; rewrite leNgt h. Qed.

(* A number is its positive part less its negative one. *)
Lemma positive_part (R : realDomainType) (x : R) : x = Num.max x 0 - Num.max (- x) 0.
Proof.
have [h|h] := lerP x 0.
  by rewrite sub0r (max_idPl _) ?opprK // oppr_ge0.
by rewrite (max_idPr _) ?subr0 // oppr_le0 ltW.
Qed.

(* The regret, sample by sample. *)
Lemma regret_le (R : realFieldType) n (v v' b : 'I_n -> R) :
  (forall k, Num.max (v k) 0 - (if 0 < v' k then v k else 0) <= b k) ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k b k.
Proof. by move=> h; rewrite [X in _ - X]big_mkcond -sumrB; apply: ler_sum => k _; apply: h. Qed.

Theorem selection_regret : Statements.Selection.selection_regret.
Proof.
move=> R n v v' lambda l0; apply: regret_le => k; case: ifP => h.
  have [v0|v0] := lerP (v k) 0; last by rewrite subrr.
  rewrite sub0r distrC; apply: le_trans (ler_norm _).
  by rewrite ler_addr mulr_ge0 // ltW.
rewrite subr0; have [v0|v0] := lerP (v k) 0; first by [].
apply: le_trans (ler_norm _); rewrite ler_addl oppr_ge0; apply: mulr_ge0_le0 => //.
by rewrite leNgt h.
Qed.

Theorem certified_regret : Statements.Selection.certified_regret.
Proof.
move=> R n v v' e he; split.
  apply: regret_le => k; have := he k; rewrite ler_norml ler_subl_addr => /andP [h1 h2].
  rewrite le_maxr; case: ifP => h.
    rewrite gtr0_norm //; have [v0|v0] := lerP (v k) 0; last by rewrite subrr lexx orbT.
    by rewrite sub0r -ler_opp2 opprB opprK addrC -ler_subr_addr h1.
  rewrite (ler0_norm (negbT_le h)) subr0; have [v0|v0] := lerP (v k) 0; first by rewrite lexx orbT.
  by rewrite opprK h2.
have e0 k : 0 <= e k by apply: le_trans (he k).
exists (fun k => if 0 < v' k then v' k - e k else v' k + e k); split=> [k|].
  by case: ifP => _; rewrite addrAC subrr ?sub0r ?add0r ?normrN ger0_norm.
rewrite [X in _ - X]big_mkcond -sumrB; apply: eq_bigr => k _; case: ifP => h.
  by rewrite gtr0_norm // -[e k - _]opprB [X in _ - X]positive_part subKr.
by rewrite subr0 (ler0_norm (negbT_le h)) opprK addrC.
Qed.

Theorem self_exclusion : Statements.Selection.self_exclusion.
Proof.
by move=> R p n g j; rewrite (bigD1 j) //= norm_sqr -ltr_subr_addl sub0r.
Qed.
