(** Proofs of Statements/Descent.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Descent.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma natr1 (R : ringType) k : k%:R + 1 = k.+1%:R :> R.
Proof. by rewrite -addn1 natrD. Qed.

(* f' is the derivative of f on [0, 1]. *)
Definition slope (R : rcfType) (f f' : R -> R) := forall e, 0 < e -> exists2 t, 0 < t &
  forall s h, 0 <= s -> 0 <= h <= t -> s + h <= 1 -> `|f (s + h) - f s - h * f' s| <= e * h.

Section Mean.
Variable R : rcfType.
Hypothesis arch : Num.archimedean_axiom R.
Implicit Types (f : R -> R) (a b c e s t : R).

Lemma steps e t f : 0 < t -> (forall s h, 0 <= s -> 0 <= h <= t -> s + h <= 1 -> f (s + h) - f s <= e * h) ->
  f 1 - f 0 <= e.
Proof.
move=> t0 small; have [N hN] := arch t^-1; set h := N.+1%:R^-1 : R.
have h0 : 0 < h by rewrite invr_gt0 ltr0Sn.
have Nh : N.+1%:R * h = 1 by rewrite divff // pnatr_eq0.
have ht : h <= t.
  rewrite -(invrK t) lef_pinv ?posrE ?invr_gt0 ?ltr0Sn //; apply: ltW; apply: le_lt_trans (ler_norm _) _.
  by apply: lt_le_trans hN _; rewrite ler_nat.
have walk k : (k <= N.+1)%N -> f (k%:R * h) - f 0 <= e * (k%:R * h).
  elim: k => [|k IH] kN; first by rewrite mul0r subrr mulr0.
  have next : k%:R * h + h = k.+1%:R * h by rewrite -natr1 mulrDl mul1r.
  have inside : k.+1%:R * h <= 1 by rewrite -[X in _ <= X]Nh ler_pmul2r // ler_nat.
  have := small (k%:R * h) h; rewrite next ht (ltW h0) mulr_ge0 ?ler0n ?(ltW h0) //= =>
    /(_ isT isT inside) step.
  by have := ler_add step (IH (ltnW kN)); rewrite addrA subrK -mulrDr [h + _]addrC next.
by have := walk N.+1 (leqnn _); rewrite Nh mulr1.
Qed.

Lemma rises_le f f' a b c : slope f f' -> 0 <= c -> (forall s, 0 <= s <= 1 -> f' s <= a + b * s + c * s ^+ 2)
  ->
  f 1 - f 0 <= a + b / 2%:R + c / 3%:R.
Proof.
move=> der c0 bound; pose Q s := a * s + b / 2%:R * s ^+ 2 + c / 3%:R * s ^+ 3.
have -> : a + b / 2%:R + c / 3%:R = Q 1 - Q 0 by rewrite /Q; field.
rewrite -subr_le0; apply/ler_addgt0Pr => e e0; rewrite add0r.
have [|t t0 ht] := der (e / 2%:R); first by rewrite divr_gt0 ?ltr0n.
have b1 : 0 < `|b| + 1 by rewrite ltr_spaddr.
have -> : f 1 - f 0 - (Q 1 - Q 0) = (f 1 - Q 1) - (f 0 - Q 0) by ring.
apply: (@steps e (Num.min t (e / (`|b| + 1))) (fun s => f s - Q s)) => [|s h s0];
  first by rewrite lt_minr t0 divr_gt0.
rewrite le_minr ler_pdivl_mulr // => /and3P [h0 hh hb] sh.
have s1 : s <= 1 by apply: le_trans sh; rewrite ler_addl.
have -> : f (s + h) - Q (s + h) - (f s - Q s)
    = (f (s + h) - f s - h * f' s) + h * (f' s - (a + b * s + c * s ^+ 2))
      - h * (h * (b / 2%:R + c * s + c * h / 3%:R)).
  by rewrite /Q; field.
have whole : e * h = e / 2%:R * h + 0 + h * (e / 2%:R) by field.
rewrite {}whole; apply: ler_add; first apply: ler_add.
- by apply: le_trans (ler_norm _) (ht _ _ _ _ _); rewrite ?h0.
- by rewrite mulr_ge0_le0 // subr_le0 bound // s0.
rewrite -mulrN ler_wpmul2l // ler_oppl; apply: le_trans (_ : - (e / 2%:R) <= h * (b / 2%:R)) _.
  rewrite ler_oppl -mulrN -mulNr mulrA ler_pmul2r ?invr_gt0 ?ltr0n //; apply: le_trans hb.
  by rewrite ler_wpmul2l // -[X in X <= _]addr0 ler_add ?ler01 // -normrN ler_norm.
by rewrite ler_wpmul2l // -addrA ler_addl addr_ge0 ?divr_ge0 ?mulr_ge0 ?ler0n.
Qed.

(* A derivative that is off u + v s by at most a + b s + c s^2. *)
Lemma mean f f' u v a b c : slope f f' -> 0 <= c ->
  (forall s, 0 <= s <= 1 -> `|f' s - (u + v * s)| <= a + b * s + c * s ^+ 2) ->
  `|f 1 - f 0 - (u + v / 2%:R)| <= a + b / 2%:R + c / 3%:R.
Proof.
move=> der c0 bound; rewrite ler_norml; apply/andP; split.
  have der' : slope (fun s => - f s) (fun s => - f' s).
    move=> e /der [t t0 ht]; exists t => // s h s0 hs sh; rewrite -normrN.
    by have -> : - (- f (s + h) - - f s - h * - f' s) = f (s + h) - f s - h * f' s; [ring | exact: ht].
  rewrite ler_subr_addl -ler_opp2; have -> : - (u + v / 2%:R - (a + b / 2%:R + c / 3%:R))
    = a - u + (b - v) / 2%:R + c / 3%:R by field.
  have -> : - (f 1 - f 0) = - f 1 - - f 0 by ring.
  apply: (rises_le der' c0) => s hs; have := bound s hs; rewrite -normrN => /(le_trans (ler_norm _)).
  by rewrite -subr_ge0 => low; rewrite -subr_ge0; move: low; congr (0 <= _); ring.
rewrite ler_subl_addr; have -> : a + b / 2%:R + c / 3%:R + (u + v / 2%:R) = a + u + (b + v) / 2%:R + c / 3%:R
  by field.
apply: (rises_le der c0) => s hs; have := le_trans (ler_norm _) (bound s hs).
by rewrite -subr_ge0 => high; rewrite -subr_ge0; move: high; congr (0 <= _); ring.
Qed.

(* Along a segment, where F has derivative dF at each point, uniformly on bounded sets. *)
Lemma slope_along p (F : 'cV[R]_p -> R) (dF : 'cV[R]_p -> 'cV[R]_p -> R) x d :
  (forall r e, 0 < e -> exists2 t, 0 < t &
   forall x h, norm x <= r -> norm h <= t -> `|F (x + h) - F x - dF x h| <= e * norm h) ->
  (forall x a, dF x (a *: d) = a * dF x d) -> slope (fun s => F (x + s *: d)) (fun s => dF (x + s *: d) d).
Proof.
move=> der linear e e0; have d1 : 0 < norm d + 1 by rewrite ltr_spaddr ?norm_ge0 ?ltr01.
have [|t t0 ht] := der (norm x + norm d) (e / (norm d + 1)); first by rewrite divr_gt0.
exists (t / (norm d + 1)) => [|s h s0 /andP [h0 hh] sh]; first by rewrite divr_gt0.
rewrite scalerDl addrA -linear; move: hh; rewrite ler_pdivl_mulr // => hh.
have hd : h * norm d <= h * (norm d + 1) by rewrite ler_wpmul2l // ler_addl ler01.
apply: le_trans (ht _ _ _ _) _.
- apply: le_trans (norm_triangle _ _) _; rewrite ler_add2l normZ ger0_norm // ler_pimull ?norm_ge0 //.
  by apply: le_trans sh; rewrite ler_addl.
- by rewrite normZ ger0_norm //; exact: le_trans hh.
by rewrite normZ ger0_norm // mulrAC ler_pdivr_mulr // -mulrA ler_wpmul2l // ltW.
Qed.

Lemma remainder_le p (L : 'cV[R]_p -> R) dL theta lambda d : gradient_of L dL -> lipschitz dL lambda ->
  `|L (theta + d) - L theta - dot (dL theta) d| <= lambda * norm d ^+ 2 / 2%:R.
Proof.
move=> diff smooth.
have der : slope (fun s => L (theta + s *: d)) (fun s => dot (dL (theta + s *: d)) d).
  apply: (slope_along (dF := fun x h => dot (dL x) h)) => [r e /diff [t t0 ht]|x a]; last exact: dotZr.
  by exists t => // x h _; exact: ht.
have := mean (u := dot (dL theta) d) (v := 0) (a := 0) (b := lambda * norm d ^+ 2) der (lexx 0).
rewrite scale1r scale0r addr0 !mul0r !addr0 add0r; apply=> s /andP [s0 _].
rewrite !mul0r !addr0 add0r -dotBl; apply: le_trans (cauchy_schwarz _ _) _.
have -> : lambda * norm d ^+ 2 * s = lambda * (s * norm d) * norm d by ring.
apply: ler_wpmul2r; first exact: norm_ge0.
by apply: le_trans (smooth _ _) _; rewrite addrAC subrr add0r normZ ger0_norm.
Qed.
End Mean.

Theorem descent_meaning : Statements.Descent.descent_meaning.
Proof.
move=> R p L dL theta g lambda eta arch diff smooth eta0 v change.
have bound : `|change + eta * v| <= lambda * eta ^+ 2 * norm g ^+ 2 / 2%:R.
  have := remainder_le arch theta (- (eta *: g)) diff smooth.
  rewrite dotNr dotZr opprK normN normZ exprMn real_normK ?num_real // [lambda * (_ * _)]mulrA.
  by [].
split=> // eta1 small; move: bound; rewrite ler_norml => /andP [low high].
  rewrite -(ltr_add2r (eta * v)) add0r; apply: le_lt_trans high _.
  rewrite ltr_pdivr_mulr ?ltr0n // -subr_gt0.
  have -> : eta * v * 2%:R - lambda * eta ^+ 2 * norm g ^+ 2 = eta * (2%:R * v - lambda * norm g ^+ 2 * eta)
    by ring.
  by rewrite mulr_gt0 // subr_gt0.
rewrite -(ltr_add2r (eta * v)) add0r; apply: lt_le_trans low.
rewrite -subr_gt0.
have -> : - (lambda * eta ^+ 2 * norm g ^+ 2 / 2%:R) - eta * v
        = eta / 2%:R * (- (2%:R * v) - lambda * norm g ^+ 2 * eta) by field.
by rewrite mulr_gt0 ?divr_gt0 ?ltr0n // subr_gt0.
Qed.
